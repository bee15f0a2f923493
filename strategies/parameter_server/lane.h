#pragma once

#include <cstdint>
#include <string>

// The source of what a coordinator's functions push, whichever worker executes them
// (ParameterClient::Source): "chief:0/lane-3", also of a coordinator that is worker:0.
namespace cohort::parameter_server {

std::string lane_name(uint64_t lane);
bool is_lane_name(const std::string& text);

}  // namespace cohort::parameter_server
