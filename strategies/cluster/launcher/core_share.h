#pragma once

#include <sched.h>

namespace cohort::launcher {

// The cores of one of `tasks` tasks that divide those on which this process may run: equally, each
// core to one of them, without what is left over. kInvalidArgument where there are fewer than
// tasks.
cpu_set_t core_share(int task, int tasks);

}  // namespace cohort::launcher
