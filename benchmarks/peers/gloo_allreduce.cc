// In-place float32 sums by Gloo over TCP on loopback: RANK SIZE FOLDER BYTES..., the folder for its
// file store. The ranks meet before each; the median of rank 0 counts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

// As many as the benchmark that this is compared with makes.
int repetitions_of(long bytes) {
  return static_cast<int>(std::clamp((1L << 30) / bytes, 11L, 2001L));
}

void add(void* to, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<float*>(to)[i] = static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
}

double seconds_of(const Context& context, std::vector<float>& data) {
  gloo::BarrierOptions meeting(context);
  gloo::barrier(meeting);
  const auto begin = std::chrono::steady_clock::now();
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(add);
  gloo::allreduce(options);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(argv[3]);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  for (int i = 4; i < argc; ++i) {
    const long bytes = std::atol(argv[i]);
    std::vector<float> data(static_cast<size_t>(bytes / 4), 1e-20f);
    std::vector<double> times;
    for (int r = -3; r < repetitions_of(bytes); ++r) {
      const double seconds = seconds_of(context, data);
      if (r >= 0) times.push_back(seconds);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    if (rank == 0)
      std::printf("gloo np=%d bytes=%ld median_us=%.2f algbw_GBs=%.3f\n", size, bytes, median * 1e6,
                  static_cast<double>(bytes) / median / 1e9);
  }
}
