// Preloaded into a program (LD_PRELOAD), sets its wall clock SKEW seconds forward, from SKEW_AFTER
// seconds after its start on: as if somebody had set the clock of its host. Steady clocks stay.
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/time.h>

namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int real_clock(clockid_t clock, timespec* time) {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  return real(clock, time);
}

double number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atof(text);
}

time_t skew() {
  static const time_t seconds = static_cast<time_t>(number_of("SKEW"));
  static const double after = number_of("SKEW_AFTER");
  static const double start = [] {
    timespec now;
    real_clock(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }();
  timespec now;
  real_clock(CLOCK_MONOTONIC, &now);
  const double ran =
      static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - start;
  return ran >= after ? seconds : 0;
}

bool is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

// A time of the skewed clock, as the kernel's has it. Steady clocks have not run for 30 years.
timespec kernel_time(const timespec& time) {
  timespec out = time;
  if (time.tv_sec > 1'000'000'000) out.tv_sec -= skew();
  return out;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  const int status = real_clock(clock, time);
  if (status == 0 && is_wall(clock)) time->tv_sec += skew();
  return status;
}

int gettimeofday(timeval* time, void*) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, static_cast<suseconds_t>(now.tv_nsec / 1000)};
  return 0;
}

time_t time(time_t* out) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static auto* const real =
      next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  const timespec time = kernel_time(*until);
  return real(condition, mutex, &time);
}

int sem_timedwait(sem_t* semaphore, const timespec* until) {
  static auto* const real = next<int(sem_t*, const timespec*)>("sem_timedwait");
  const timespec time = kernel_time(*until);
  return real(semaphore, &time);
}

}  // extern "C"
