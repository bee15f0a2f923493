// A traced function in files: its graph, one for each size of a batch, and, by name, the values of
// its variables. --save writes them, --load runs them in a process that has no code for the
// function.
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

constexpr int64_t kSizes[] = {1, 2};  // of batches

Tensor example(int64_t size) { return Tensor::full(DType::kFloat32, {size, 3}, 1); }

std::string path_of(const std::string& folder, int64_t size) {
  return str(folder, "/predict-", size, ".graph");
}

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

  create_folders(folder);
  write_safetensors(folder + "/variables.safetensors", {.tensors = {{w->name(), w->value()}}});
  for (const int64_t size : kSizes) {
    print(predict({example(size)})[0]);
    write_file_atomically(path_of(folder, size),
                          serialize_function(predict.trace({example(size).spec()})));
  }
}

void load(const std::string& folder) {
  // Made once, so that the functions of all sizes have the same ones.
  std::map<std::string, std::shared_ptr<Variable>> variables;
  const auto values = read_safetensors(folder + "/variables.safetensors").tensors;
  for (const auto& each : values)
    variables[each.first] =
        create_variable({.name = each.first, .spec = each.second.spec(), .initial_value = [&] {
                           return each.second;
                         }});
  const auto find_variable = [&](const std::string& name) -> std::shared_ptr<Resource> {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  };
  for (const int64_t size : kSizes) {
    const GraphFunction predict = import_function(read_file(path_of(folder, size)), find_variable);
    if (predict.outputs.size() != 1)
      fail(Code::kDataLoss, path_of(folder, size), ": the function gives ", predict.outputs.size(),
           " results; expected 1");
    Plan plan(predict, PlanOptions{});
    const std::vector<Tensor> inputs = {example(size)};
    print(plan.run(inputs, StepInfo{})[0]);
  }
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
