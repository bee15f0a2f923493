// Processes that talk to each other without any training: a message around the ring, an all-reduce
// made of sends and receives beside the library's own, and values that are mixed with neighbours'.
//
//   cohort-run --workers=4 bazel-bin/examples/collectives
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

// Each rank adds its number to what comes from the left and hands it to the right.
void pass_around(collective::ProcessGroup& group) {
  if (group.size() == 1) return;
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  float token = 0;
  if (group.rank() == 0) collective::send(group, Tensor::scalar(token), right);
  token = static_cast<float>(collective::receive(group, left).value.item());
  token += static_cast<float>(group.rank());
  if (group.rank() != 0) collective::send(group, Tensor::scalar(token), right);
  if (group.rank() == 0) std::printf("ring=%g\n", token);
}

// The sum of all ranks' values by the ring algorithm: what comes from the left is added and passed
// on, size - 1 times.
Tensor ring_all_reduce(collective::ProcessGroup& group, const Tensor& value) {
  Tensor sum = value.clone(), passing = value;
  const int right = (group.rank() + 1) % group.size();
  const int left = (group.rank() + group.size() - 1) % group.size();
  for (int step = 1; step < group.size(); ++step) {
    // Odd ranks receive first, so that nobody waits for a receiver that itself sends.
    const bool sends_first = group.rank() % 2 == 0;
    if (sends_first) collective::send(group, passing, right);
    const Tensor received = collective::receive(group, left).value;
    if (!sends_first) collective::send(group, passing, right);
    passing = received;
    for (int64_t i = 0; i < sum.num_elements(); ++i)
      sum.data<float>()[i] += passing.data<float>()[i];
  }
  return sum;
}

// Three times each rank's number becomes the mean of that and its neighbours' in the ring.
void gossip(collective::ProcessGroup& group) {
  Tensor value = Tensor::full(DType::kFloat32, {1}, 3 * group.rank());
  collective::mix(group, {&value, 1}, collective::ring_row(group.rank(), group.size()));
  const Tensor values = collective::gather(group, value, 0);
  if (group.rank() != 0) return;
  char separator = '=';
  std::printf("gossip");
  for (const float mixed : values.values<float>()) {
    std::printf("%c%g", separator, mixed);
    separator = ',';
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Sends, receives and all-reduces between the processes of a job.");
    const int64_t count = flags.integer("count", 1000, "elements to reduce", {.min = 0});
    flags.finish();
    collective::ProcessGroup group;
    pass_around(group);
    gossip(group);
    const Tensor value =
        Tensor::full(DType::kFloat32, {count}, static_cast<double>(group.rank() + 1));
    const Tensor by_hand = ring_all_reduce(group, value);
    const Tensor sum = collective::all_reduce(group, value);
    int64_t different = 0;
    for (int64_t i = 0; i < count; ++i)
      different += by_hand.data<float>()[i] != sum.data<float>()[i];
    const auto differences =
        collective::reduce(group, Tensor::scalar(static_cast<double>(different)), 0);
    if (group.rank() == 0)
      std::printf("ranks=%d sum=%g differences=%g\n", group.size(),
                  count > 0 ? sum.data<float>()[0] : 0, differences.item());
  });
}
