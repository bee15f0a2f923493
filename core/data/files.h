#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/data/dataset.h"

namespace cohort::data {

// Opens one file as a dataset.
using ReadFunction = std::function<Dataset(const std::string& path)>;

// The elements of `read(path)` for each of `paths`: of options.cycle_length files in turn. A file
// is opened when its turn comes, so only those being read are in memory.
//
//   data::from_files(paths, [](const std::string& path) { return data::csv(path); })
//
// What is made of it can be divided over workers by file: AutoShardPolicy::kFile, and kAuto where
// each has one. Then all workers need the same list in the same order, as that of a folder may not
// be: sort it. The folder that all files are in may have another name on each host.
Dataset from_files(std::vector<std::string> paths, ReadFunction read,
                   InterleaveOptions options = {});

}  // namespace cohort::data
