#pragma once

namespace cohort::launcher {

// How many cores this process, and what it starts, may use.
int available_cores();

}  // namespace cohort::launcher
