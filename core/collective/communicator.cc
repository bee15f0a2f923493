#include "core/collective/communicator.h"

namespace cohort {

void check_send(const SendCall& call, int rank, int size) {
  if (call.destination < 0 || call.destination >= size || call.destination == rank)
    invalid("rank ", rank, " of ", size, " sends to rank ", call.destination,
            "; allowed is another rank of the group");
  if (call.tag < 0) invalid("a message has the tag ", call.tag, "; allowed are 0 and up");
  if (call.bytes < 0) invalid("a message has ", call.bytes, " bytes");
  if (call.source == nullptr && call.bytes > 0)
    invalid("the source of a message of ", call.bytes, " bytes is null");
}

void check_receive(const ReceiveCall& call, int rank, int size) {
  if (call.source != kAnyRank && (call.source < 0 || call.source >= size || call.source == rank))
    invalid("rank ", rank, " of ", size, " receives from rank ", call.source,
            "; allowed is another rank of the group, or kAnyRank");
  if (size == 1) invalid("the only rank of a group asks for a message, which nobody can send it");
  if (call.tag < 0 && call.tag != kAnyTag)
    invalid("a receive asks for the tag ", call.tag, "; allowed are 0 and up, or kAnyTag");
  if (call.capacity < 0) invalid("a receive has room for ", call.capacity, " bytes");
  if (call.target == nullptr && call.capacity > 0)
    invalid("the target of a receive with room for ", call.capacity, " bytes is null");
}

void refuse_unknown_message(int64_t id) {
  invalid("there is no message ", id, " to wait for: it was waited for already, or is not one ",
          "of this communicator's");
}

}  // namespace cohort
