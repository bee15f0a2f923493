#include "core/runtime/variable.h"

namespace cohort {
namespace {

class LocalVariable final : public Variable {
 public:
  explicit LocalVariable(const VariableOptions& options)
      : Variable(options.name, options.spec, options.trainable),
        storage_(make_initial_value(options)) {}
  Tensor value() const override { return storage_.clone(); }
  void set_value(const Tensor& value) override { assign_storage(storage_, value); }
  Tensor storage(int) override { return storage_; }

 private:
  Tensor storage_;
};

}  // namespace

Value Variable::read() {
  return current_graph().add("ReadVariable", {}, {}, shared_from_this()).output();
}

void Variable::assign(const Value& value) {
  value.graph().add("AssignVariable", {value}, {}, shared_from_this());
}

void Variable::assign_storage(Tensor& storage, const Tensor& value) const {
  if (!(value.spec() == spec_))
    invalid("variable \"", name_, "\" is ", spec_, ", got ", value.spec());
  storage.assign(value);
}

Tensor make_initial_value(const VariableOptions& options) {
  if (!options.initial_value) invalid("variable \"", options.name, "\" has no initial value");
  Tensor value = options.initial_value();
  if (!(value.spec() == options.spec))
    invalid("variable \"", options.name, "\" is ", options.spec, ", its initial value is ",
            value.spec());
  // The storage must belong to the variable alone.
  return value.use_count() > 1 ? value.clone() : value;
}

std::shared_ptr<Variable> make_local_variable(const VariableOptions& options) {
  return std::make_shared<LocalVariable>(options);
}

}  // namespace cohort
