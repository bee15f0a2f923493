#include "core/data/files.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/crc32c.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

Dataset interleaved(const std::vector<std::string>& paths, const ReadFunction& read,
                    const InterleaveOptions& options) {
  const auto open = [paths, read](const Element& number) {
    return read(paths.at(static_cast<size_t>(number["value"].item())));
  };
  return range(static_cast<int64_t>(paths.size())).interleave(open, options);
}

// How many bytes of each path are the folder that all are in.
size_t common_folder(const std::vector<std::string>& paths) {
  if (paths.empty()) return 0;
  std::string_view same = paths.front();
  same = same.substr(0, same.rfind('/') + 1);
  for (const std::string& path : paths) {
    const auto end = std::mismatch(same.begin(), same.end(), path.begin(), path.end()).first;
    same = same.substr(0, static_cast<size_t>(end - same.begin()));
  }
  return same.rfind('/') + 1;  // 0 where there is none
}

class FilesStream : public Stream {
 public:
  FilesStream(std::unique_ptr<Stream> elements, int64_t count, int64_t checksum)
      : elements_(std::move(elements)), count_(count), checksum_(checksum) {}

  std::optional<Item> next() override { return elements_->next(); }
  int64_t skip(int64_t count) override { return elements_->skip(count); }
  Position save() const override { return {"files", {count_, checksum_}, {elements_->save()}}; }
  void restore(const Position& position) override {
    position.expect("files", 2, 1);
    if (position.numbers != std::vector<int64_t>{count_, checksum_})
      fail(Code::kFailedPrecondition, "this position was saved with ", position.numbers[0],
           " files, and these ", count_,
           " are other ones, in another order, or those of another input pipeline: elements would "
           "be left out and repeated");
    elements_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> elements_;
  const int64_t count_, checksum_;
};

class FilesSource : public Source {
 public:
  // `folder` is the common_folder() of the whole list.
  FilesSource(std::vector<std::string> paths, ReadFunction read, const InterleaveOptions& options,
              size_t folder)
      : paths_(std::move(paths)),
        read_(std::move(read)),
        options_(options),
        folder_(folder),
        elements_(interleaved(paths_, read_, options_)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<FilesStream>(elements_.source()->open(pass),
                                         static_cast<int64_t>(paths_.size()), files_checksum());
  }
  int64_t cardinality() const override { return elements_.cardinality(); }
  bool may_yield_batches() const override { return true; }
  // Which files there are is compared by itself (describe_batches).
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str("from_files() with cycle_length ", options_.cycle_length,
                             " and block_length ", options_.block_length)};
  }
  const std::vector<std::string>* files() const override { return &paths_; }
  SourcePtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<FilesSource>(std::move(files), read_, options_, folder_);
  }
  uint32_t files_checksum() const override {
    uint32_t checksum = 0;
    for (const std::string& path : paths_)
      checksum =
          crc32c(std::string_view(path.c_str() + folder_, path.size() - folder_ + 1), checksum);
    return checksum;
  }

 private:
  std::vector<std::string> paths_;
  ReadFunction read_;
  InterleaveOptions options_;
  size_t folder_;
  Dataset elements_;
};

}  // namespace

Dataset from_files(std::vector<std::string> paths, ReadFunction read, InterleaveOptions options) {
  if (!read) invalid("from_files(): the function is empty");
  const size_t folder = common_folder(paths);
  return Dataset(std::make_shared<FilesSource>(std::move(paths), std::move(read), options, folder));
}

}  // namespace cohort::data
