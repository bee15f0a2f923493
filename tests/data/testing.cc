#include "tests/data/testing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <zlib.h>

#include "core/base/random.h"
#include "tests/testing/trials.h"

namespace cohort::data {

std::vector<int64_t> remaining(Iterator& iterator) {
  std::vector<int64_t> values;
  while (const auto element = iterator.next()) {
    const auto here = (*element)["value"].values<int64_t>();
    values.insert(values.end(), here.begin(), here.end());
  }
  return values;
}

std::vector<int64_t> values(const Dataset& dataset, uint64_t epoch) {
  Iterator iterator = dataset.iterate({.epoch = epoch});
  return remaining(iterator);
}

std::vector<int64_t> count_up(int64_t begin, int64_t end) {
  std::vector<int64_t> values(end - begin);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

Dataset in_order_of_completion(int64_t count) {
  const auto others = std::make_shared<Level>();
  const auto first_is_slow = [others, count](const Element& e) {
    if (e["value"].item() > 0)
      others->raise();
    else
      EXPECT_TRUE(others->reaches(static_cast<int>(std::min<int64_t>(count - 1, 3))));
    return e;
  };
  return range(count).map(first_is_slow, {.num_parallel = 2, .deterministic = false});
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(Code::kUnknown, "");
}

void expect_error(const std::function<void()>& action, Code code,
                  const std::vector<std::string>& texts) {
  const Error error = error_of(action);
  EXPECT_EQ(code_name(error.code()), code_name(code)) << error.what();
  for (const std::string& text : texts)
    EXPECT_NE(error.message().find(text), std::string::npos)
        << "\"" << text << "\" is not in: " << error.message();
}

std::string TempDir::path(std::string_view name) const { return str(root(), "/", name); }

std::string TempDir::write(std::string_view name, std::string_view content) const {
  // Truncating a file in place makes some file systems flush it to disk, which takes milliseconds.
  std::filesystem::remove(path(name));
  std::ofstream(path(name), std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return path(name);
}

std::string gzip(std::string_view content) {
  z_stream stream{};
  constexpr int kGzipFormat = 16;  // added to the window bits
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzipFormat, 8,
               Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string idx_bytes(const std::vector<uint32_t>& dims, std::string_view content) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) file += big_endian(dim);
  return file + std::string(content);
}

namespace {

// Whether reading worked; an Error has to say where in which file.
bool reads(const std::string& path, const std::function<void(const std::string&)>& read) {
  try {
    read(path);
    return true;
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    const bool has_place = error.message().find("byte ") != std::string::npos ||
                           error.message().find(path + ":") != std::string::npos;
    EXPECT_TRUE(has_place || error.code() == Code::kUnimplemented) << error.message();
    return false;
  }
}

}  // namespace

void expect_robust_to_flips(const std::string& name, std::string_view content,
                            const std::function<void(const std::string& path)>& read) {
  const auto [seed, damaged_files] = cohort::testing::trials(20240917, 2000);
  SCOPED_TRACE(str("bits flipped with seed ", seed));
  const TempDir dir;
  RandomStream random(seed);
  for (uint64_t i = 0; i < damaged_files; ++i) {
    std::string damaged(content);
    for (uint64_t flips = 1 + random.below(3); flips > 0; --flips)
      damaged[random.below(damaged.size())] ^= static_cast<char>(1 << random.below(8));
    reads(dir.write(name, damaged), read);
  }
}

void expect_robust(const std::string& name, std::string_view content,
                   const std::function<void(const std::string& path)>& read) {
  const TempDir dir;
  for (size_t size = 0; size < content.size(); ++size)
    EXPECT_FALSE(reads(dir.write(name, content.substr(0, size)), read))
        << "cut to " << size << " bytes";
  expect_robust_to_flips(name, content, read);
}

}  // namespace cohort::data
