#include "core/collective/parts.h"

#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/collective/forwarding_communicator.h"

namespace cohort {

struct Parts::Living {
  std::mutex mutex;  // guards what follows
  std::set<Communicator*> parts;
  std::optional<Error> error;
};

// Does not go away while it is aborted.
class Parts::Part final : public ForwardingCommunicator {
 public:
  Part(std::unique_ptr<Communicator> part, std::shared_ptr<Living> living)
      : ForwardingCommunicator(std::move(part)), living_(std::move(living)) {
    const std::lock_guard lock(living_->mutex);
    living_->parts.insert(&inner());
    if (living_->error) inner().abort(*living_->error);
  }
  ~Part() override {
    const std::lock_guard lock(living_->mutex);
    living_->parts.erase(&inner());
  }

 private:
  const std::shared_ptr<Living> living_;
};

std::shared_ptr<Parts::Living> Parts::make_living() { return std::make_shared<Living>(); }

std::unique_ptr<Communicator> Parts::add(std::unique_ptr<Communicator> part) {
  if (part == nullptr) return nullptr;
  return std::make_unique<Part>(std::move(part), living_);
}

void Parts::abort(const Error& error) {
  const std::lock_guard lock(living_->mutex);
  if (!living_->error) living_->error = error;
  for (Communicator* part : living_->parts) part->abort(*living_->error);
}

}  // namespace cohort
