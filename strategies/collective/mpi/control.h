#pragma once

#include <cstdint>
#include <vector>

namespace cohort::mpi {

// What fits into a control message, and travels with it instead of in pieces of its own. Together
// with its head it stays below what Open MPI sends without asking the receiver (4 KiB between
// processes of one host).
inline constexpr int64_t kInlineBytes = 3072;

// What the processes tell each other. Control messages of one process arrive in the order in which
// it sent them, so that one that ends a group comes after all that its sender did in it before.
struct Control {
  enum class Kind : uint32_t {
    kCall,     // a collective: sequence, content (the fingerprint), 1 for a mistake, receive tag;
               // payload: small data
    kText,     // words about a call for an error
    kMessage,  // a message: id, tag, bytes; payload: all of it if it is small
    kReply,    // the receiver of a message has it or wants it: id, Answer, room for it, receive tag
    kEnd,      // the group has ended: calls that the sender takes full part in, error code, length
               // of the peer's name; payload: that name and the error's message
    kLeave     // the process is about to end
  };
  enum Answer : uint64_t { kTaken, kSendIt, kTooLong };

  Kind kind = Kind::kCall;
  uint32_t rank = 0;   // of the sender in its group
  uint64_t group = 0;  // its id
  uint64_t words[4] = {};
  std::vector<char> payload = {};  // kInlineBytes at most
};

}  // namespace cohort::mpi
