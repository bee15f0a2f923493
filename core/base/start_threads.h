#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace cohort {

// Starts `count` threads, of which each calls body(i) with its number, from 0 on, on any core
// (use_all_cores()); `body` must not throw. Who gets them joins them. kResourceExhausted where the
// system has not so many: then `stop`, which is given that error, makes those end that have been
// started, and they are waited for.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body,
                                       const std::function<void(const Error&)>& stop);

// The same with one thread.
std::thread start_thread(const std::function<void()>& body);

}  // namespace cohort
