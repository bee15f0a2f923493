#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// One host of a list, and where in the text its name begins: columns count from 1.
struct ListedHost {
  std::string name;
  int column = 0;
};

// Writes out a host list as Slurm writes them, in the list's own order:
//
//   n[1-3,7],m5            n1 n2 n3 n7 m5
//   n[08-10]               n08 n09 n10: numbers are as wide as the first of their range
//   rack[1-2]n[1-2]-ib     rack1n1-ib rack1n2-ib rack2n1-ib rack2n2-ib
//
// Hosts stand apart by commas or blanks and may occur several times. kInvalidArgument names `place`
// and the column of the mistake, also for a list of more than `max_hosts`, before it is written
// out; then it names `max_source`, too, which is what sets that limit, where there is one.
std::vector<ListedHost> expand_host_list(std::string_view text, std::string_view place,
                                         int max_hosts, std::string_view max_source = "");

// Numbers of tasks per host as Slurm writes them: "3(x2),1" is 3, 3, 1. Errors are as above.
std::vector<int> expand_task_counts(std::string_view text, std::string_view place, int max_hosts,
                                    std::string_view max_source = "");

}  // namespace cohort
