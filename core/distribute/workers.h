#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort {

// The processes that train together under one strategy, each with its replicas, and what they tell
// each other between steps. Every worker makes the same calls in the same order. Where one makes
// another call, all get kFailedPrecondition that names both; where one makes none, the others get
// kDeadlineExceeded. Thread-safe, but threads must not make their order of calls a matter of luck.
//
// This class is the worker of a process on its own.
class Workers {
 public:
  virtual ~Workers() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }
  // "worker:1": how messages name a worker.
  virtual std::string name(int rank) const;
  // The chief does what only one may do, such as writing a file.
  bool is_chief() const { return rank() == 0; }

  // What every worker has passed, in rank order. `topic` says in words what it is about ("the
  // saving of weights"), the same on every worker.
  virtual std::vector<std::string> exchange(const std::string& topic, std::string_view value);
  // The same for values of a step, such as a loss: a worker that is late by what replicas may be in
  // a collective (CommunicationOptions::timeout_seconds) ends it, where that is set.
  virtual std::vector<std::string> exchange_for_step(const std::string& topic,
                                                     std::string_view value) {
    return exchange(topic, value);
  }
  // Copies the chief's memory to the same memory of the others.
  virtual void broadcast(const std::string& topic, void* data, size_t bytes);
  // Takes part in whatever the others call next, and makes it throw `error` on all workers, this
  // one too: for a mistake that this worker alone can see. An error without a peer gets this
  // worker's name. When several fail, all throw that of the lowest rank.
  [[noreturn]] virtual void fail(const Error& error);

  // Whether the job has been asked to stop, on whichever worker (see stop_request()): for all
  // alike, as of the last exchange, of which every step makes one.
  virtual bool stop_requested() const;
  // What the chief's clock has shown at the last exchange, for all alike: what goes by the time is
  // decided by it. When it began to count means nothing. A worker on its own has its own clock, and
  // what that shows now.
  virtual std::chrono::nanoseconds chief_time() const;
};

// What `work` returns on the chief, which alone calls it. What it throws is thrown by all.
std::string from_chief(Workers& workers, const std::string& topic,
                       const std::function<std::string()>& work);

// What other workers are told of an exception that is no Error: kResourceExhausted where there was
// no memory, else kAborted, with its text.
Error error_for_others(const std::exception& thrown);

// The calls of together() that this thread is in, one inside the other: an exception may leave
// several. What they have told is forgotten with the outermost.
class TogetherScope {
 public:
  TogetherScope();
  ~TogetherScope();
  TogetherScope(const TogetherScope&) = delete;
  TogetherScope& operator=(const TogetherScope&) = delete;

  // Makes the others throw the exception that is being handled, `thrown`, unless a call inside this
  // one has.
  static void tell_once(Workers& workers, const std::exception& thrown);
};

// Calls `work` on every worker. What it throws on one is thrown by all: as an Error, with the name
// of that worker. Only an exception of the user's own arrives there as it was thrown; where there
// is one worker alone, everything does.
template <typename Work>
auto together(Workers& workers, const Work& work) {
  if (workers.size() == 1) return work();
  const TogetherScope scope;
  try {
    return work();
  } catch (const Error& error) {
    workers.fail(error);
    throw;  // not reached, which compilers cannot see through the virtual call
  } catch (const std::bad_alloc& error) {
    workers.fail(error_for_others(error));
    throw;
  } catch (const std::exception& error) {
    scope.tell_once(workers, error);
    throw;
  }
}

}  // namespace cohort
