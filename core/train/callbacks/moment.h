#pragma once

#include <string>

#include "core/train/training.h"

namespace cohort::callbacks {

// Where training stands, in words: "after epoch 2" or "in epoch 3 after step 4".
std::string moment(const Training& training);

}  // namespace cohort::callbacks
