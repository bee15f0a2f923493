#pragma once

#include <memory>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {

// The stream of a map() with options.num_parallel threads; `function` outlives it.
std::unique_ptr<Stream> parallel_map_stream(std::unique_ptr<Stream> input,
                                            const MapFunction& function, const MapOptions& options);

}  // namespace cohort::data
