#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/distributed_dataset.h"
#include "core/distribute/strategy.h"
#include "core/nn/composite.h"
#include "core/nn/layer.h"
#include "core/nn/losses.h"
#include "core/nn/metrics.h"
#include "core/optim/optimizer.h"
#include "core/runtime/function.h"
#include "core/train/callback.h"
#include "core/train/checkpoint.h"
#include "core/train/history.h"
#include "core/train/per_output.h"

namespace cohort {

class Feed;
class Stepper;

// How to train and measure. A network of several outputs has a loss for each of them, in their
// order, or for those that are named; of what it measures, every metric names its output. An output
// without either needs no labels. Training minimises the sum of the losses, each times its weight,
// of what layers add (LayerBase::add_loss), and of the penalties on weights. Results are that sum,
// "loss", and the metrics; those of several outputs have the output's name in front, as do the
// losses of each, before they are weighted: "kind_accuracy", "kind_loss". kInvalidArgument for what
// does not fit the outputs, which the error lists, and for two results of one name.
struct CompileOptions {
  optim::Optimizer optimizer;
  PerOutput<losses::Loss> loss = {};
  PerOutput<double> loss_weights = {};      // 1 where there is none
  PerOutput<metrics::Metric> metrics = {};  // of all rows alike
  // Of rows, or their time steps, by their weights: the batch's and, in training, class_weight.
  PerOutput<metrics::Metric> weighted_metrics = {};
  // kMixedFloat16 turns the optimizer's loss scaling on (Optimizer::use_loss_scale).
  Precision precision = Precision::kFloat32;
};

// Factors for rows by their class; 1 where absent. Labels are its number, [rows] or [rows, 1], or
// have a value for each class that the network predicts, of which the largest counts; others are
// kInvalidArgument.
using ClassWeight = std::map<int64_t, double>;

enum class Verbose {
  kAuto,  // a progress bar on a terminal, a line for each epoch elsewhere
  kSilent,
};

// What fit() validates with: a dataset of batches, or tensors, which it batches.
class ValidationData {
 public:
  // A dataset is one. NOLINTNEXTLINE(google-explicit-constructor)
  ValidationData(data::Dataset batches) : data_(std::move(batches)), is_batched_(true) {}
  // As in fit(x, y), with weights as FitOptions has them.
  ValidationData(const Tensor& x, const Tensor& y,
                 const std::optional<Tensor>& sample_weight = std::nullopt);

  bool is_batched() const { return is_batched_; }
  // The dataset; the tensors in batches of so many rows, without a number of 32. kInvalidArgument
  // for a number of rows of what has batches.
  data::Dataset batches(std::optional<int64_t> batch_size) const;

 private:
  data::Dataset data_;
  bool is_batched_;
};

// The arguments of Keras' Model.fit with its names, defaults and meanings.
struct FitOptions {
  int64_t epochs = 1;         // the number of the last epoch, not of further ones
  int64_t initial_epoch = 0;  // the epoch to begin with, when continuing
  // Batches that make an epoch; without it, the whole dataset. With it, one pass over the dataset
  // follows the other as if it was repeated, and epochs begin wherever the one before has ended.
  std::optional<int64_t> steps_per_epoch = {};
  std::optional<ValidationData> validation_data = {};
  int64_t validation_freq = 1;  // validate after every so many epochs
  // At most so many batches; a warning, once, where the dataset has fewer.
  std::optional<int64_t> validation_steps = {};
  std::vector<CallbackPtr> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  // Of rows of training. They multiply the rows' weights; with weights of time steps they are
  // kInvalidArgument.
  ClassWeight class_weight = {};
  // Whether to go on after an epoch whose loss of training is no finite number. Otherwise it ends
  // fit() with kOutOfRange, before it is validated and before callbacks see its end. Of such a loss
  // of validation there is a warning.
  bool allow_nan_loss = false;
  // How several workers share out what they train on, and what they validate with, which is by
  // EvaluateOptions::auto_shard.
  AutoShardPolicy auto_shard = AutoShardPolicy::kAuto;
  AutoShardPolicy validation_auto_shard = AutoShardPolicy::kAuto;

  // For tensors only, of training or of validation; a dataset says for itself.
  std::optional<int64_t> batch_size = {};             // 32 by default; over all replicas
  std::optional<int64_t> validation_batch_size = {};  // of validation; batch_size by default
  std::optional<bool> shuffle = {};                   // true by default; anew in each epoch
  // The last part of the rows, as a fraction in [0, 1), is for validation.
  std::optional<double> validation_split = {};
  // How much each row counts: [rows]; or [rows, t], each time step of outputs [rows, t, ..], 0 for
  // padding. Losses are multiplied by it, and their mean stays that of all rows and steps. Also of
  // the rows that validation_split takes.
  std::optional<Tensor> sample_weight = {};
};

// The arguments of Keras' Model.evaluate.
struct EvaluateOptions {
  // At most so many batches; a warning where the dataset has fewer.
  std::optional<int64_t> steps = {};
  // Whether a stop that is asked for, before or meanwhile, ends it with kCancelled, as fit(): all
  // workers after one and the same batch. In a callback of fit() it never does. Without it a
  // program may evaluate once more before it ends.
  bool interruptible = true;
  // How several workers share out the data. With kAuto, those of which each steps on its own
  // (InputContext::independent) read all of it, each.
  AutoShardPolicy auto_shard = AutoShardPolicy::kAuto;

  // For tensors only, as in FitOptions.
  std::optional<int64_t> batch_size = {};
  std::optional<Tensor> sample_weight = {};
};

// The arguments of Keras' Model.predict.
struct PredictOptions {
  std::optional<int64_t> steps = {};       // as EvaluateOptions::steps
  bool interruptible = true;               // as in EvaluateOptions
  std::optional<int64_t> batch_size = {};  // for tensors only; 32 by default
};

// A network with what it takes to train it. A cheap handle; copies are the same model. It belongs
// to the strategy that was current when it was made: its variables are made there, and every batch
// is split over that strategy's replicas. It is used in that strategy's scope or outside any; in
// the scope of another one, methods that build, train or compute are kFailedPrecondition, and so is
// all that needs the strategy once that has ended: then there are still variables(), of a
// ParameterServerStrategy while its servers live. One thread at a time.
//
// With several workers, all call the same methods in the same order, with the same arguments, and
// get the same results: fit() and evaluate() those of all rows, predict() all rows' outputs. With
// another number of workers rows meet in other batches, which a loss of evaluate() that does not
// divide by rows depends on (losses::Reduction). The chief alone writes and reads files, and an
// error of one is thrown by all.
//
// Random ops that are active outside training (a layer of one's own that samples, dropout called
// with training = true) have other numbers in every batch that evaluate() or predict() computes,
// and the same ones for a fresh model with the same calls and global seed. Training's do not depend
// on them.
//
// predict() is for many rows: each call begins a pass over a dataset. Single rows, as of a server,
// are much quicker by a plan of a function that calls the model (docs/functions.md).
//
// A batch is a data::Batch: "label" is the target, "weight" the optional weight of each row, or of
// each of its time steps, in the loss and weighted_metrics (as FitOptions::sample_weight),
// everything else in order the inputs of the network. A network of several outputs has a target for
// each that has a loss or metrics, "label/NAME", with "weight/NAME" or else "weight". A batch
// counts by its true rows, so partial ones are exact.
class Model {
 public:
  explicit Model(nn::Layer network);

  // Sets how to train. To be called again after freezing layers; variables keep their values.
  // kFailedPrecondition while fit() runs, and before a network is built that has several outputs
  // which were given no names.
  void compile(CompileOptions options);

  // Trains; with OptimizerOptions::ema the weights are the averages in the end, if there was a step
  // to take or a backup of one. Errors name the epoch and step, or its validation. After SIGINT
  // (see init()), SIGTERM or what else CatchTermination takes for it, on any worker, it stops with
  // the step or the batch of validation under way, calls on_train_end, and throws kCancelled.
  History fit(const data::Dataset& dataset, const FitOptions& options = {});
  // Here and below, of tensors: x is the only input of the network and y the labels of its only
  // output, a row each.
  History fit(const Tensor& x, const Tensor& y, const FitOptions& options = {});

  // Loss and metrics over a dataset, by name; nothing is learned.
  Logs evaluate(const data::Dataset& dataset, const EvaluateOptions& options = {});
  Logs evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {});

  // The network's output for all rows, one below the other in the order of the dataset. Labels and
  // weights are passed over. A stop that is asked for meanwhile, as of fit(), ends it with
  // kCancelled, but in a callback of fit(). kInvalidArgument for a network of several outputs.
  Tensor predict(const data::Dataset& dataset, const PredictOptions& options = {});
  Tensor predict(const Tensor& x, const PredictOptions& options = {});
  // The same of any number of outputs: a tensor for each, by output_names().
  data::Element predict_all(const data::Dataset& dataset, const PredictOptions& options = {});
  data::Element predict_all(const Tensor& x, const PredictOptions& options = {});

  // The network as part of a function that is being traced, for training loops of one's own.
  Value operator()(const Value& x, const nn::CallContext& context = {}) const;
  Value operator()(const std::vector<Value>& inputs, const nn::CallContext& context = {}) const;
  std::vector<Value> outputs(const std::vector<Value>& inputs,
                             const nn::CallContext& context = {}) const;

  // The network as part of a larger one that is being drawn.
  nn::Symbol operator()(const nn::Symbol& x, const nn::SymbolContext& context = {}) const;
  nn::Symbol operator()(const std::vector<nn::Symbol>& inputs,
                        const nn::SymbolContext& context = {}) const;
  std::vector<nn::Symbol> outputs(const std::vector<nn::Symbol>& inputs,
                                  const nn::SymbolContext& context = {}) const;

  // Creates the variables for inputs of these specs, batch included (its extent does not matter).
  // Training and predicting do so by themselves, and functional models are born built.
  void build(const std::vector<TensorSpec>& inputs);

  // A table of layers, output shapes and parameter counts; with several replicas also the bytes of
  // variables that each device holds: the weights and, of a compiled model, what its optimizer
  // keeps so far. Once it has trained or predicted, also step_memory(). Like saving, it needs a
  // built model (kFailedPrecondition).
  std::string summary() const;
  // What the compiled steps of training, evaluation and prediction hold in this process. Each shape
  // of batches has a step of its own, and all are kept.
  FunctionMemory step_memory() const;

  // Weights alone, as a safetensors file. A file that is loaded before the model is built is read
  // again when it is: by build(), or what builds it first, which throws what does not fit. Until it
  // is loaded, or another one in its place, what trains or predicts tries that again, and what else
  // would use or save the weights is kFailedPrecondition. What is returned before it is loaded has
  // the file's strings alone.
  void save_weights(const std::string& path) const;
  Loaded load_weights(const std::string& path, const LoadOptions& options = {});
  // Weights and the optimizer's state. Before the model is built and compiled, loading waits for
  // both, and predicting is kFailedPrecondition until then, too.
  void save_checkpoint(const std::string& path, const Metadata& metadata = {}) const;
  Loaded load_checkpoint(const std::string& path, const LoadOptions& options = {});

  const nn::Layer& network() const;
  std::vector<std::string> output_names() const;  // as Layer's
  // In whose scope it was made; kFailedPrecondition once that has ended.
  Strategy& strategy() const;
  const optim::Optimizer& optimizer() const;  // kFailedPrecondition before compile()
  // Of the network, as Layer's: none before it is built.
  Variables variables() const;
  Variables trainable_variables() const;
  // What save_checkpoint() saves: these and the optimizer's, which it makes where there are none.
  Variables checkpoint_variables() const;

 private:
  friend class Training;
  struct State;
  Stepper& stepper() const;  // kFailedPrecondition before compile()
  // kFailedPrecondition in the scope of a strategy that the model does not belong to.
  void require_home() const;
  // The scope of the model's strategy.
  Strategy::Scope enter_home() const;
  // Builds an unbuilt network for the first batch of that epoch, and loads what was asked for.
  void build_for(Feed& feed, int64_t epoch);
  // What evaluate() reads. kInvalidArgument for what can be seen not to be batches that end, which
  // tells the name of the option `steps`.
  Feed evaluation_feed(const data::Dataset& dataset, std::optional<int64_t> steps,
                       AutoShardPolicy auto_shard, std::string_view steps_name = "steps") const;
  // What evaluate() finds, in so many batches; nothing when it was interrupted.
  struct Tested {
    Logs logs;
    int64_t batches;
  };
  std::optional<Tested> test(const data::Dataset& dataset, const EvaluateOptions& options);
  // What predict_all() returns, for a `method` that errors name.
  std::vector<Tensor> predict_outputs(std::string_view method, const data::Dataset& dataset,
                                      const PredictOptions& options);
  std::vector<Tensor> predict_batch(const data::DistributedBatch& batch);
  Variables built_variables() const;
  // Loads what was asked for before there were variables, once there are.
  void load_pending();
  // kFailedPrecondition where variables are still to be loaded, or even made, saying how.
  void require_loaded() const;
  // Of the network and, once compiled, those its optimizer has made so far.
  Variables all_variables() const;

  std::shared_ptr<State> state_;
};

namespace nn {

// A model of layers that follow each other, and one drawn from nn::Input.
Model Sequential(const std::vector<Layer>& layers, std::string name = "");
Model Functional(const std::vector<Symbol>& inputs, const Symbol& output, std::string name = "");
Model Functional(const std::vector<Symbol>& inputs, const std::vector<Symbol>& outputs,
                 std::string name = "");

}  // namespace nn
}  // namespace cohort
