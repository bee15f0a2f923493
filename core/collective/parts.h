#pragma once

#include <memory>

#include "core/collective/communicator.h"

namespace cohort {

// The parts that a rank has made of its group, as long as they live: whom an abort of the group
// reaches, too. Thread-safe.
class Parts {
 public:
  // Makes `part` one of them; an abort that came first ends it at once. Null stays null.
  std::unique_ptr<Communicator> add(std::unique_ptr<Communicator> part);
  // Aborts every present and later part with `error`; the first one given wins.
  void abort(const Error& error);

 private:
  struct Living;
  class Part;

  static std::shared_ptr<Living> make_living();

  const std::shared_ptr<Living> living_ = make_living();  // parts may outlive their group
};

}  // namespace cohort
