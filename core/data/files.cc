#include "core/data/files.h"

#include <utility>

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

class FilesSource : public Source {
 public:
  FilesSource(std::vector<std::string> paths, ReadFunction read, const InterleaveOptions& options)
      : paths_(std::move(paths)),
        read_(std::move(read)),
        options_(options),
        elements_(interleaved(paths_, read_, options_)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return elements_.source()->open(pass);
  }
  int64_t cardinality() const override { return elements_.cardinality(); }
  bool may_yield_batches() const override { return true; }
  const std::vector<std::string>* files() const override { return &paths_; }
  SourcePtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<FilesSource>(std::move(files), read_, options_);
  }

 private:
  std::vector<std::string> paths_;
  ReadFunction read_;
  InterleaveOptions options_;
  Dataset elements_;
};

}  // namespace

Dataset from_files(std::vector<std::string> paths, ReadFunction read, InterleaveOptions options) {
  if (!read) invalid("from_files(): the function is empty");
  return Dataset(std::make_shared<FilesSource>(std::move(paths), std::move(read), options));
}

}  // namespace cohort::data
