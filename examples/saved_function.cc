// A traced function in files: its graph and, by name, the values of its variables. --save writes
// them, --load runs the function in a process that has no code for it.
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

Tensor example() { return Tensor::from<float>({1, 0, -1}, {1, 3}); }

void print(const Tensor& probabilities) {
  std::printf("probabilities=%s\n", to_string(probabilities).c_str());
}

void save(const std::string& folder) {
  const auto w =
      create_variable({.name = "w", .spec = {DType::kFloat32, {3, 2}}, .initial_value = [] {
                         return Tensor::from<float>({1, 2, 3, 4, 5, 7}, {3, 2});
                       }});
  const Function predict =
      function([&](Value x) { return ops::softmax(ops::matmul(x, w->read())); }, "predict");
  print(predict({example()})[0]);

  create_folders(folder);
  write_safetensors(folder + "/variables.safetensors", {.tensors = {{w->name(), w->value()}}});
  write_file_atomically(folder + "/predict.graph",
                        serialize_function(predict.trace({example().spec()})));
}

void load(const std::string& folder) {
  const auto values = read_safetensors(folder + "/variables.safetensors").tensors;
  const auto make_variable = [&](const std::string& name) -> std::shared_ptr<Resource> {
    const auto found = values.find(name);
    if (found == values.end()) return nullptr;
    const Tensor& value = found->second;
    return create_variable(
        {.name = name, .spec = value.spec(), .initial_value = [&] { return value; }});
  };
  const GraphFunction predict =
      import_function(read_file(folder + "/predict.graph"), make_variable);
  Plan plan(predict, PlanOptions{});
  const std::vector<Tensor> inputs = {example()};
  print(plan.run(inputs, StepInfo{})[0]);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "A function that is saved and loaded.");
    const auto target = flags.text("save", "", "the folder to save the function in");
    const auto source = flags.text("load", "", "the folder to run a saved function of");
    flags.finish();
    if (target.empty() && source.empty()) invalid("give --save, --load, or both");
    if (!target.empty()) save(target);
    if (!source.empty()) load(source);
  });
}
