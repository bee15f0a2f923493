#include "core/kernels/cpu/dnnl_sequence.h"

#include <algorithm>

namespace cohort {
namespace {

using dnnl::memory;

bool is_post_op(const std::string& activation) {
  return activation.empty() || activation == "Relu";
}

void* resolve(const DnnlSequence::Place& place, const KernelContext& context) {
  using Kind = DnnlSequence::Place::Kind;
  switch (place.kind) {
    case Kind::kInput:
      return const_cast<void*>(context.inputs[place.value]);
    case Kind::kOutput:
      return context.outputs[place.value];
    case Kind::kScratch:
      break;
  }
  return scratch_at<void>(context, place.value);
}

}  // namespace

dnnl::engine& dnnl_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool dnnl_has(dnnl::cpu_isa instructions) {
  const int wanted = static_cast<int>(instructions);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

bool dnnl_runs(const KernelSpec& spec) {
  static const bool bfloat16_is_fast = dnnl_has(dnnl::cpu_isa::avx512_core_bf16);
  const auto runs = [](const TensorSpec& tensor) {
    const bool type =
        tensor.dtype == DType::kFloat32 || (tensor.dtype == DType::kBFloat16 && bfloat16_is_fast);
    return type && tensor.shape.num_elements() > 0;
  };
  const bool activates_itself = is_post_op(spec.attributes.get_or<std::string>("activation", "")) ||
                                spec.outputs[0].dtype == DType::kFloat32;
  return activates_itself && std::all_of(spec.inputs.begin(), spec.inputs.end(), runs) &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), runs);
}

memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

void DnnlSequence::add(const dnnl::primitive& primitive, std::vector<Argument> arguments) {
  const memory::desc temporary(
      *dnnl_primitive_desc_query_md(primitive.get_primitive_desc(), dnnl_query_scratchpad_md, 0));
  if (temporary.get_size() > 0)
    arguments.push_back({DNNL_ARG_SCRATCHPAD, temporary, scratch(temporary)});
  Step step{primitive, {}, {}, {}};
  for (const auto& argument : arguments) {
    step.places.push_back(argument.place);
    step.memories.emplace_back(argument.desc, dnnl_engine(), nullptr);
    step.arguments.push_back({argument.id, step.memories.back().get()});
  }
  steps_.push_back(std::move(step));
}

DnnlSequence::Place DnnlSequence::reordered(Place place, const memory::desc& from,
                                            const memory::desc& to) {
  if (from == to) return place;
  const Place copy = scratch(to);
  add_reorder(place, from, copy, to);
  return copy;
}

void DnnlSequence::add_reorder(Place from, const memory::desc& from_desc, Place to,
                               const memory::desc& to_desc) {
  const dnnl::reorder::primitive_desc desc(dnnl_engine(), from_desc, dnnl_engine(), to_desc,
                                           attributes());
  add(dnnl::reorder(desc), {{DNNL_ARG_FROM, from_desc, from}, {DNNL_ARG_TO, to_desc, to}});
}

// oneDNN's own relu turns NaN into 0, which would hide a diverged model, and so do its maxima and
// bounds; its leaky one passes NaN on. Two of them with this slope make every negative number above
// -1e15 vanish. -inf stays: what would end it takes NaN along.
dnnl::primitive_attr DnnlSequence::attributes(const std::string& activation) {
  constexpr float kSlope = 1e-30f;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (activation == "Relu") {
    dnnl::post_ops after;
    for (int i = 0; i < 2; ++i)
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, kSlope, 0.0f);
    attributes.set_post_ops(after);
  }
  return attributes;
}

void DnnlSequence::finish_with(const std::string& activation, int64_t output_elements) {
  if (is_post_op(activation)) return;
  activation_ = Epilogue<float>(activation);
  output_elements_ = output_elements;
}

void DnnlSequence::run(const KernelContext& context) {
  for (Step& step : steps_) {
    for (size_t i = 0; i < step.places.size(); ++i) {
      void* data = resolve(step.places[i], context);
      // Setting a handle has oneDNN clear a blocked layout's padding: only where it moved.
      if (step.memories[i].get_data_handle() != data) step.memories[i].set_data_handle(data);
    }
    const auto status =
        dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                               static_cast<int>(step.arguments.size()), step.arguments.data());
    if (status != dnnl_success)
      fail(Code::kInternal, "oneDNN failed with status ", static_cast<int>(status));
  }
  activation_.run(context.output<float>(0), output_elements_, 1, nullptr);
}

}  // namespace cohort
