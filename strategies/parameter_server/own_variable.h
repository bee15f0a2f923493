#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/distribute/remote_updates.h"
#include "core/runtime/variable.h"
#include "strategies/parameter_server/server_variable.h"

namespace cohort {

// A variable that each process has to itself, as those synchronised on read are where every worker
// runs the program. For functions that are scheduled on workers it goes to the parameter servers
// (share): one copy, which all of them change. From then on value(), assign() and so on act there,
// and ServerFunction brings the copies of this process up to date for the functions that it runs.
// But one that is kept apart stays with each process: workers have their own of it, too.
// Thread-safe, but for what Variable says of functions that are running.
class OwnVariable final : public Variable {
 public:
  // `own` has this process's copies; `on_servers` says where the other one goes.
  OwnVariable(std::shared_ptr<Variable> own, ServerVariable::Options on_servers,
              std::shared_ptr<ServerSession> session);

  // Not while anybody else uses it; what is apart is never shared.
  void keep_apart(KeptApart kept) { apart_ = kept; }
  bool is_apart() const { return apart_.has_value(); }
  // What for; nothing where it is not apart.
  std::optional<KeptApart> kept() const { return apart_; }
  // As it was when it was made.
  Tensor initial_value() const { return make_initial_value(on_servers_.variable); }

  // The one on the servers, made with the present value here. Where they have it already, as from a
  // coordinator of before, theirs counts, unless it has been assigned here.
  std::shared_ptr<ServerVariable> share();
  // Null before share().
  std::shared_ptr<ServerVariable> shared() const;

  Tensor storage(int replica) override { return own_->storage(replica); }
  // Functions that no strategy runs use the one on the servers, too.
  void begin_read_outside() override;
  void end_write_outside() override;
  int num_replicas() const override { return own_->num_replicas(); }
  bool is_written_by_others() const override { return true; }
  std::vector<Device> devices() const override { return own_->devices(); }
  std::vector<std::shared_ptr<Variable>> other_copies() const override {
    return own_->other_copies();
  }

  // --- For ServerFunction, once it is shared

  // Takes over what was pulled into the storage of shared().
  void pulled(const ServerVariable::Places& places, const std::vector<UpdateResult>& results);
  // Replicas of this process have written it.
  void written();

 protected:
  Tensor load_value() const override;
  void store_value(const Tensor& value) override;
  void add_value(const Tensor& delta) override;
  void subtract_value(const Tensor& delta) override;
  void scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates) override;

 private:
  // Of the copies here: merged, or the first where they have no merged value.
  Tensor present() const;
  // Of the one on the servers, or of those here.
  void change(const std::function<void(Variable& variable)>& change);

  const std::shared_ptr<Variable> own_;
  const ServerVariable::Options on_servers_;
  const std::shared_ptr<ServerSession> session_;
  std::optional<KeptApart> apart_;
  mutable std::mutex mutex_;  // guards what follows; held while it is shared
  bool assigned_ = false;
  std::shared_ptr<ServerVariable> shared_;
};

}  // namespace cohort
