#include "strategies/variables/common_variable.h"

namespace cohort {
namespace {

class CommonVariable final : public Variable {
 public:
  CommonVariable(const VariableOptions& options, Device device, int replicas,
                 const Workers& workers, std::shared_ptr<CommonMemory> memory,
                 std::shared_ptr<CommonWrites> writes)
      : Variable(options),
        device_(device),
        replicas_(replicas),
        rank_(workers.rank()),
        workers_(workers.size()),
        memory_(std::move(memory)),
        writes_(std::move(writes)),
        number_(writes_->add(memory_)),
        common_(tensor_at(memory_->common())),
        own_(tensor_at(memory_->own())) {}

  Tensor storage(int replica) override {
    require_replica(replica);
    return common_;
  }
  Tensor storage_outside(int replica) override {
    require_replica(replica);
    return own_;
  }
  void begin_write_outside() override {
    memory_->begin_write();
    writes_->note(number_);
  }
  int num_replicas() const override { return replicas_; }
  bool is_written_by(int replica) const override { return rank_ == 0 && replica == 0; }
  bool is_shared() const override { return true; }
  int num_sharing() const override { return replicas_ * workers_; }
  int first_sharing() const override { return replicas_ * rank_; }
  std::vector<Device> devices() const override { return {device_}; }

 protected:
  Tensor load_value() const override { return own_.clone(); }
  void store_value(const Tensor& value) override {
    if (value.spec() == spec()) begin_write_outside();  // another is refused
    assign_storage(own_, value);
  }

 private:
  // Keeps the memory as long as anybody uses it.
  Tensor tensor_at(void* data) const {
    auto buffer = std::shared_ptr<Buffer>(new Buffer{data, spec().bytes()},
                                          [memory = memory_](Buffer* buffer) { delete buffer; });
    return Tensor(spec().dtype, spec().shape, std::move(buffer));
  }

  const Device device_;
  const int replicas_, rank_, workers_;
  const std::shared_ptr<CommonMemory> memory_;
  const std::shared_ptr<CommonWrites> writes_;
  const size_t number_;
  Tensor common_, own_;
};

}  // namespace

std::shared_ptr<Variable> make_common_variable(const VariableOptions& options,
                                               const std::vector<Device>& devices, Workers& workers,
                                               const std::string& topic, const Tensor& value,
                                               const std::shared_ptr<CommonWrites>& writes) {
  auto memory = CommonMemory::make(workers, topic, value);
  if (memory == nullptr) return nullptr;
  return std::make_shared<CommonVariable>(options, devices[0], static_cast<int>(devices.size()),
                                          workers, std::move(memory), writes);
}

}  // namespace cohort
