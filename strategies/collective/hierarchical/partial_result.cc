#include "strategies/collective/hierarchical/partial_result.h"

#include "core/base/threads.h"

namespace cohort::hierarchical {
namespace {

// What one thread takes at least.
constexpr int64_t kGrain = int64_t{1} << 14;

// target[i] = f(source[i]), which may be the same memory.
template <typename S, typename T, typename F>
void for_all(const S* source, T* target, int64_t count, const F& f) {
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] = f(source[i]);
  });
}

}  // namespace

void PartialResult::widen(const void* elements, char* partial, int64_t count) const {
  auto* const wide = reinterpret_cast<float*>(partial);
  dispatch(NumberTypes{}, dtype_, "a reduction", [&]<typename T>() {
    for_all(static_cast<const T*>(elements), wide, count,
            [](T x) { return static_cast<float>(x); });
  });
}

void PartialResult::finish(const char* partial, char* elements, int64_t count) const {
  const bool is_mean = op_ == ReduceOp::kMean;
  if (!is_half() && !is_mean) return;
  dispatch(NumberTypes{}, dtype_, "a reduction", [&]<typename T>() {
    using A = std::conditional_t<sizeof(T) == 2, float, T>;
    const A divisor = is_mean ? static_cast<A>(ranks_) : A{1};
    for_all(reinterpret_cast<const A*>(partial), reinterpret_cast<T*>(elements), count,
            [&](A x) { return static_cast<T>(x / divisor); });
  });
}

}  // namespace cohort::hierarchical
