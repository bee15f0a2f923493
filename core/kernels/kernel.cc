#include "core/kernels/kernel.h"

#include <map>

#include "core/kernels/registry.h"

namespace cohort {
namespace {

using Key = std::pair<std::string, DeviceType>;

std::map<Key, KernelFactory>& registry() {
  static std::map<Key, KernelFactory> kernels;
  return kernels;
}

class StatelessKernel final : public Kernel {
 public:
  StatelessKernel(const KernelSpec& spec, KernelFunction function)
      : inputs_(spec.inputs),
        outputs_(spec.outputs),
        attributes_(spec.attributes),
        function_(function) {}
  void run(const KernelContext& context) override {
    function_({inputs_, outputs_, attributes_}, context);
  }

 private:
  std::vector<TensorSpec> inputs_, outputs_;
  Attributes attributes_;
  KernelFunction function_;
};

}  // namespace

Error Kernel::describe(const KernelFault& fault) const {
  return Error(Code::kInternal, str("found ", fault.value, " at ", fault.position,
                                    ", without saying what it means"));
}

std::unique_ptr<Kernel> make_kernel(const KernelSpec& spec) {
  const auto it = registry().find(Key(spec.op, spec.device.type));
  if (it == registry().end())
    fail(Code::kUnimplemented, "op ", spec.op, " has no kernel for ", spec.device);
  return it->second(spec);
}

bool has_kernel(std::string_view op, DeviceType type) {
  return registry().count(Key(op, type)) > 0;
}

std::vector<std::string> ops_with_kernel(DeviceType type) {
  std::vector<std::string> ops;
  for (const auto& [key, factory] : registry())
    if (key.second == type) ops.push_back(key.first);
  return ops;
}

KernelRegistration::KernelRegistration(std::string op, DeviceType type, KernelFactory factory) {
  COHORT_CHECK(registry().emplace(Key(std::move(op), type), std::move(factory)).second);
}

KernelFactory stateless_kernel(KernelFunction function) {
  return [function](const KernelSpec& spec) {
    return std::make_unique<StatelessKernel>(spec, function);
  };
}

}  // namespace cohort
