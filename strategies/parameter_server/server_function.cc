#include "strategies/parameter_server/server_function.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "strategies/parameter_server/function_cut.h"
#include "strategies/parameter_server/push_op.h"
#include "strategies/parameter_server/update_round.h"

namespace cohort {
namespace {

using parameter_server::FunctionCut;
using parameter_server::Lookup;
using parameter_server::Sending;
using parameter_server::ServerVariablePtr;
using Calls = ServerVariable::Calls;
using Places = ServerVariable::Places;
using Inputs = PerReplica<std::vector<Tensor>>;

// Maps values of a graph to those of the one that is being traced, node by node.
class Copier {
 public:
  void map(const Value& old, const Value& replacement) { values_[old] = replacement; }
  Value operator()(const Value& old) const { return values_.at(old); }

  void copy(const Node& node) {
    std::vector<Value> inputs;
    for (const Value& input : node.inputs()) inputs.push_back((*this)(input));
    Node& added = current_graph().add_named(node.name(), node.op(), std::move(inputs),
                                            node.attributes(), node.shared_resource());
    for (int i = 0; i < static_cast<int>(added.outputs().size()); ++i)
      map(Value(const_cast<Node*>(&node), i), added.output(i));
  }

  // The inputs of `graph` are the first of `inputs`.
  void map_inputs(const Graph& graph, const std::vector<Value>& inputs) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) map(graph.inputs()[i], inputs[i]);
  }

 private:
  ValueMap<Value> values_;
};

bool is_input(const Node& node) { return node.op().name == "Input"; }

Value sum_of(const Copier& copied, const std::vector<Sending::Term>& terms) {
  Value sum;
  for (const auto& [value, is_negative] : terms) {
    const Value term = is_negative ? -copied(value) : copied(value);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// What replicas change in their parts of a variable makes one change; all else is the same on each.
Value of_all_replicas(const Sending& sending, const Value& change) {
  if (!sending.variable->has_parts()) return change;
  switch (sending.variable->aggregation()) {
    case Aggregation::kSum:
      return ops::all_reduce({change}, ReduceOp::kSum)[0];
    case Aggregation::kMean:
      return ops::all_reduce({change}, ReduceOp::kMean)[0];
    default:
      return change;  // the first replica's counts
  }
}

// The numbers of the rows that each lookup names.
std::vector<Value> trace_row_numbers(const FunctionCut& cut, const std::vector<Value>& inputs) {
  const Graph& graph = *cut.graph().graph;
  std::vector<Value> numbers;
  for (const Lookup& lookup : cut.lookups()) numbers.push_back(lookup.gather->inputs()[1]);
  const std::vector<bool> needed = parameter_server::ancestors(graph, numbers);
  Copier copied;
  copied.map_inputs(graph, inputs);
  for (size_t id = 0; id < needed.size(); ++id)
    if (needed[id] && !is_input(*graph.nodes()[id])) copied.copy(*graph.nodes()[id]);
  for (Value& value : numbers) value = ops::cast(copied(value), DType::kInt64);
  return numbers;
}

// The function itself. Its inputs are followed by the rows of each table, then by the places of
// each lookup's rows among these; its outputs by what is sent: values, and where there are,
// indices, learning rate, number of the update, weight and condition.
std::vector<Value> trace_step(const FunctionCut& cut, const std::vector<Value>& inputs) {
  const Graph& graph = *cut.graph().graph;
  const size_t first_table = graph.inputs().size(),
               first_lookup = first_table + cut.tables().size();
  Copier copied;
  copied.map_inputs(graph, inputs);
  for (const auto& node : graph.nodes()) {
    const auto* resource = node->resource();
    const bool is_table = resource != nullptr && std::ranges::any_of(cut.tables(), [&](auto& t) {
                            return t.get() == resource;
                          });
    if (is_input(*node) || is_table || node->op().name == parameter_server::kPushOp) continue;
    const Lookup* lookup = cut.lookup_of(*node);
    if (lookup == nullptr) {
      copied.copy(*node);
      continue;
    }
    const auto number = static_cast<size_t>(lookup - cut.lookups().data());
    copied.map(node->output(),
               current_graph()
                   .add_named(node->name(), "Gather",
                              {inputs[first_table + lookup->table], inputs[first_lookup + number]},
                              node->attributes())
                   .output());
  }
  std::vector<Value> outputs;
  for (const Value& output : cut.graph().outputs) outputs.push_back(copied(output));
  for (const Sending& sending : cut.sendings()) {
    outputs.push_back(of_all_replicas(sending, sum_of(copied, sending.terms)));
    for (const Value& also :
         {sending.indices, sending.learning_rate, sending.step, sending.weight, sending.when})
      if (also.defined()) outputs.push_back(copied(also));
  }
  return outputs;
}

// The function may come from another process.
uint64_t update_number(double number) {
  if (!(number >= 0 && number <= static_cast<double>(kMaxUpdateNumber)))
    invalid("an update has the number ", number);
  return static_cast<uint64_t>(number);
}

void require_weight(const ServerVariable& variable, double weight) {
  if (!(weight >= 0 && weight <= parameter_server::kMaxWeight))
    invalid("the gradient of variable \"", variable.name(), "\" weighs ", weight,
            " in the mean with those of other workers: it is what the loss of a batch was divided "
            "by, such as the sum of its sample weights, or what minimize() was given (allowed: 0 "
            "to 2^53)");
}

// Rows of tables that the replicas of a process look up in one call.
class RowsOfCall {
 public:
  // `numbers` has those of each lookup, by replica.
  RowsOfCall(const std::vector<const FunctionCut*>& cuts, const Inputs& numbers)
      : cuts_(cuts), numbers_(numbers), rows_(cuts[0]->tables().size()) {
    for (size_t r = 0; r < cuts.size(); ++r)
      for (size_t l = 0; l < cuts[r]->lookups().size(); ++l)
        add(cuts[r]->lookups()[l], numbers[r][l]);
    for (auto& rows : rows_) {
      std::ranges::sort(rows);
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    }
  }

  // Ascending, each once.
  const std::vector<int64_t>& rows(size_t table) const { return rows_[table]; }
  // Memory for as many rows as the lookups of all replicas could name.
  Tensor memory(size_t table) const {
    int64_t rows = 1;
    for (const FunctionCut* cut : cuts_) rows += cut->num_lookups(table);
    const TensorSpec& spec = cuts_[0]->tables()[table]->spec();
    return Tensor(spec.dtype, spec.shape.with_dim(0, rows));
  }
  // Where a lookup of a replica finds its rows in that memory.
  Tensor places(size_t replica, size_t lookup) const {
    const Lookup& of = cuts_[replica]->lookups()[lookup];
    const std::vector<int64_t>& rows = rows_[of.table];
    Tensor places = numbers_[replica][lookup].clone();
    for (int64_t i = 0; i < places.num_elements(); ++i) {
      int64_t& number = places.data<int64_t>()[i];
      if (number >= 0) number = std::ranges::lower_bound(rows, number) - rows.begin();
    }
    return places;
  }

 private:
  void add(const Lookup& lookup, const Tensor& numbers) {
    const ServerVariable& table = *cuts_[0]->tables()[lookup.table];
    const int64_t rows = table.spec().shape[0],
                  lowest = lookup.gather->attributes().get_or<bool>("allow_none", false) ? -1 : 0;
    for (const int64_t number : numbers.values<int64_t>()) {
      if (number < lowest || number >= rows)
        fail(Code::kOutOfRange, lookup.gather->name(), ": row ", number, " of variable \"",
             table.name(), "\" ", table.spec(), " (allowed: 0 to ", rows - 1,
             lowest < 0 ? ", and -1 for no row)" : ")");
      if (number >= 0) rows_[lookup.table].push_back(number);
    }
  }

  const std::vector<const FunctionCut*>& cuts_;
  const Inputs& numbers_;
  std::vector<std::vector<int64_t>> rows_;
};

}  // namespace

struct ServerFunction::State {
  std::vector<std::unique_ptr<FunctionCut>> distinct;
  std::vector<const FunctionCut*> cuts;  // by replica
  std::shared_ptr<ServerSession> session;
  Function row_numbers, step;
  uint64_t pushed_version = 0;

  State(const std::vector<const GraphFunction*>& graphs, std::shared_ptr<ServerSession> session)
      : session(std::move(session)),
        row_numbers(
            [this](const std::vector<Value>& inputs) {
              return trace_row_numbers(cut_for(inputs), inputs);
            },
            "row_numbers"),
        step([this](
                 const std::vector<Value>& inputs) { return trace_step(cut_for(inputs), inputs); },
             "step") {
    for (const GraphFunction* graph : graphs) {
      auto known =
          std::ranges::find_if(distinct, [&](auto& cut) { return &cut->graph() == graph; });
      if (known == distinct.end())
        known = distinct.insert(known, std::make_unique<FunctionCut>(*graph));
      cuts.push_back(known->get());
    }
  }

  // Which of the graphs has these as its first inputs.
  const FunctionCut& cut_for(const std::vector<Value>& inputs) const {
    const auto fits = [&](const std::unique_ptr<FunctionCut>& cut) {
      const auto& wanted = cut->graph().graph->inputs();
      return inputs.size() >= wanted.size() &&
             std::equal(wanted.begin(), wanted.end(), inputs.begin(),
                        [](const Value& a, const Value& b) { return a.spec() == b.spec(); });
    };
    const auto found = std::ranges::find_if(distinct, fits);
    COHORT_CHECK(found != distinct.end());
    return **found;
  }

  Calls no_calls() const { return Calls(static_cast<size_t>(session->num_servers())); }

  // Pulls what is read, and appends what the step is given in addition.
  Inputs pull(const Inputs& inputs, const RunReplicas& run_replicas) {
    const FunctionCut& first = *cuts[0];
    Inputs extended = inputs;
    const Inputs numbers =
        first.lookups().empty() ? Inputs(inputs.size()) : run_replicas(row_numbers, inputs);
    const RowsOfCall rows(cuts, numbers);
    Calls calls = no_calls();
    std::vector<Places> of_tables, of_whole;
    for (size_t t = 0; t < first.tables().size(); ++t) {
      const Tensor memory = rows.memory(t);
      of_tables.push_back(first.tables()[t]->add_pull(calls, rows.rows(t), memory));
      for (auto& tensors : extended) tensors.push_back(memory);
    }
    for (size_t r = 0; r < extended.size(); ++r)
      for (size_t l = 0; l < cuts[r]->lookups().size(); ++l)
        extended[r].push_back(rows.places(r, l));
    for (const ServerVariablePtr& variable : first.whole())
      of_whole.push_back(variable->add_pull(calls));
    std::vector<std::pair<OwnVariable*, Places>> of_own;
    for (const auto& own : first.own())
      if (const auto shared = own->shared())
        of_own.emplace_back(own.get(), shared->add_pull(calls));
    const std::vector<UpdateResult> results = session->update(calls);
    for (size_t t = 0; t < of_tables.size(); ++t)
      first.tables()[t]->pulled(of_tables[t], results, false);
    for (size_t v = 0; v < of_whole.size(); ++v)
      first.whole()[v]->pulled(of_whole[v], results, true);
    for (const auto& [own, places] : of_own) own->pulled(places, results);
    return extended;
  }

  // Sends what `outputs` has beyond those of the function.
  void send(const std::vector<Tensor>& outputs) {
    const FunctionCut& cut = *cuts[0];
    // Before the gradients: who goes on with these finds what is assigned, and none writes over
    // what another has written in the next step.
    for (const ServerVariablePtr& variable : cut.assigned())
      variable->assign(variable->written_value());
    Calls calls = no_calls();
    std::vector<std::pair<ServerVariable*, Places>> sent;
    auto next = outputs.begin() + static_cast<std::ptrdiff_t>(cut.graph().outputs.size());
    for (const Sending& sending : cut.sendings()) {
      const Tensor& values = *next++;
      const std::optional<Tensor> indices =
          sending.indices.defined() ? std::optional(*next++) : std::nullopt;
      ServerVariable::PushOptions options;
      if (sending.learning_rate.defined()) options.learning_rate = (next++)->item();
      if (sending.step.defined()) options.step = update_number((next++)->item());
      if (sending.weight.defined()) options.weight = (next++)->item();
      if (sending.when.defined() && (next++)->item() == 0) continue;
      require_weight(*sending.variable, options.weight);
      sent.emplace_back(sending.variable.get(),
                        sending.variable->add_push(calls, values, indices, options));
    }
    const std::vector<UpdateResult> results = session->update(calls);
    for (const UpdateResult& result : results)
      for (const ShardPushed& one : result.pushed)
        pushed_version = std::max(pushed_version, one.version - 1);  // they count from 1
    for (const auto& [variable, places] : sent) variable->pushed(places, results);
    for (const auto& own : cut.own_written())
      if (own->shared() != nullptr) own->written();
  }
};

ServerFunction::ServerFunction(const std::vector<const GraphFunction*>& graphs,
                               std::shared_ptr<ServerSession> session)
    : state_(std::make_unique<State>(graphs, std::move(session))) {}
ServerFunction::~ServerFunction() = default;

PerReplica<std::vector<Tensor>> ServerFunction::run(const Inputs& inputs,
                                                    const RunReplicas& run_replicas) {
  state_->pushed_version = 0;
  const Inputs extended = state_->pull(inputs, run_replicas);
  // Also where the step does not come to its end.
  for (const ServerVariablePtr& variable : state_->cuts[0]->written()) variable->storage_written();
  Inputs outputs = run_replicas(state_->step, extended);
  state_->send(outputs[0]);
  for (size_t r = 0; r < outputs.size(); ++r)
    outputs[r].resize(state_->cuts[r]->graph().outputs.size());
  return outputs;
}

std::vector<Tensor> ServerFunction::run(const std::vector<Tensor>& inputs, const StepInfo& step,
                                        Precision precision) {
  const auto here = [&](const Function& function, const Inputs& all) {
    return Inputs{
        function.run(all[0], PlanOptions{.precision = precision, .outside = false}, step)};
  };
  return run(Inputs{inputs}, here)[0];
}

uint64_t ServerFunction::pushed_version() const { return state_->pushed_version; }

bool ServerFunction::is_outdated() const {
  return std::ranges::any_of(state_->distinct, [](auto& cut) { return cut->is_outdated(); });
}

}  // namespace cohort
