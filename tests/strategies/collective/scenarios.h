#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/collective/communicator.h"

namespace cohort::testing {

// What each rank of a group does in a test; throws when something is not as it should be.
using Scenario = std::function<void(Communicator&)>;

// Every kind of call, over sizes from nothing to several staging areas, in memory of the rank's own
// and in memory that the communicator allocated: results must have the bits of reduce_elements.
void make_all_calls(Communicator& communicator);
void exchange_messages(Communicator& communicator);
void split_groups(Communicator& communicator);
void run_in_background(Communicator& communicator);
// The regions of ranks come and go.
void replace_memory(Communicator& communicator);

// Each rank prints the error it gets, on a line of its own.
void mismatch_calls(Communicator& communicator);
void abort_from_last_rank(Communicator& communicator);
// The last rank stops coming, in the way its process is told.
void wait_for_last_rank(Communicator& communicator);
// The process of the last rank stops itself in the middle of a collective, over shared memory, and
// the first rank ends the group then.
void stop_last_rank(Communicator& communicator);
// The process of the last rank stops itself in the middle of a collective and goes on after it has
// failed on the first rank, whose memory keeps what has been written into it since.
void stop_last_rank_for_a_while(Communicator& communicator);
// The first rank has a call under way with the second whose target shares a page with that of a
// call that fails, because the process of the third stops itself in it: the other one's is right.
void fail_beside_another_group(Communicator& communicator);
// The process of the last rank stops itself while the others wait for it in a part of the group;
// each of them then ends the group.
void stop_last_rank_of_part(Communicator& communicator);

const std::map<std::string, Scenario>& scenarios();

// Throws kInternal with what was expected.
void expect(bool condition, const std::string& what);

}  // namespace cohort::testing
