#include <functional>

#include "tests/collective/ranks.h"

namespace cohort::testing {
namespace {

using Work = std::function<void(Communicator&)>;

float g_data[8];  // never touched: every call here is refused

Work reduce(int64_t count, DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  return [=](Communicator& c) {
    const Segment segment{g_data, g_data, count};
    c.all_reduce({&segment, 1}, dtype, op);
  };
}

Work gather(std::vector<int64_t> bytes) {
  return [=](Communicator& c) { c.all_gather(g_data, g_data, bytes); };
}

Work broadcast(int64_t bytes, int root) {
  return [=](Communicator& c) { c.broadcast(g_data, g_data, bytes, root); };
}

Work barrier() {
  return [](Communicator& c) { c.barrier(); };
}

// Rank 1 of three does `odd`, the others `usual`; all must get the same error, and keep it.
std::string refusal(const Work& usual, const Work& odd) {
  std::vector<std::string> messages(3);
  on_ranks(3, [&](int rank, Communicator& communicator) {
    const Error error = error_of([&] { (rank == 1 ? odd : usual)(communicator); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    EXPECT_EQ(error_of([&] { communicator.barrier(); }).message(), error.message())
        << "the group has ended";
    messages[static_cast<size_t>(rank)] = error.message();
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  return messages[0];
}

TEST(CommunicatorErrorTest, DifferentCallsAreNamedOnAllRanks) {
  EXPECT_EQ(
      refusal(reduce(8), reduce(7)),
      "the ranks of a group must make the same calls, but in its collective 1 rank 0 asks for "
      "an all-reduce (sum) of 1 float32 tensors with 8 elements and rank 1 for an all-reduce "
      "(sum) of 1 float32 tensors with 7 elements");
  EXPECT_NE(refusal(reduce(2), reduce(2, DType::kInt32)).find("1 int32"), std::string::npos);
  EXPECT_NE(refusal(reduce(2), reduce(2, DType::kFloat32, ReduceOp::kMax)).find("(max)"),
            std::string::npos);
  EXPECT_EQ(
      refusal(broadcast(4, 0), broadcast(4, 2)),
      "the ranks of a group must make the same calls, but in its collective 1 rank 0 asks for "
      "a broadcast of 4 bytes from rank 0 and rank 1 for a broadcast of 4 bytes from rank 2");
  EXPECT_NE(refusal(broadcast(4, 0), broadcast(8, 0)).find("8 bytes"), std::string::npos);
  EXPECT_NE(refusal(gather({4, 4, 4}), gather({4, 8, 4})).find("4, 8, 4 bytes"), std::string::npos);
  EXPECT_EQ(
      refusal(barrier(), broadcast(4, 0)),
      "the ranks of a group must make the same calls, but in its collective 1 rank 0 asks for "
      "a barrier and rank 1 for a broadcast of 4 bytes from rank 0");
}

}  // namespace
}  // namespace cohort::testing
