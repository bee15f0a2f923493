// Options as programs write them, one member of many: of those left out no compiler has to warn.
#include <chrono>

#include "cohort.h"

using namespace cohort;
using namespace std::chrono_literals;

template <typename... Options>
void take(const Options&...) {}

void take_all() {
  take(TextOptions{.alone = "all"}, IntegerRange{.min = 1},
       CommunicationOptions{.bytes_per_pack = 1}, RunOptions{.step = 1},
       InputOptions{.prefetch = 2}, MembershipOptions{.join_timeout = 20s},
       collective::ProcessGroupOptions{.limit = 20s}, LoadOptions{.ignore_missing = true});
  take(data::CsvOptions{.has_header = false}, data::ShuffleOptions{.seed = 1},
       data::IterateOptions{.epoch = 1}, data::BatchOptions{.drop_remainder = true},
       data::MapOptions{.num_parallel = 2}, data::DistributedSampler::Options{.num_replicas = 2});
  take(nn::DenseOptions{.use_bias = false}, nn::ResidualOptions{.name = "sum"},
       nn::Conv2DOptions{.groups = 2}, nn::DepthwiseConv2DOptions{.depth_multiplier = 2},
       nn::Pool2DOptions{.strides = 2}, nn::WeightOptions{.trainable = false},
       nn::BatchNormalizationOptions{.momentum = 0.9},
       nn::LayerNormalizationOptions{.epsilon = 1e-5}, nn::RMSNormOptions{.epsilon = 1e-5},
       nn::EmbeddingOptions{.name = "words"}, nn::EmbeddingBagOptions{.name = "words"},
       nn::MultiHeadAttentionOptions{.causal = true});
  take(ops::Conv2DOptions{.groups = 2}, ops::Pool2DOptions{.size = {3, 3}},
       ops::SafeLookupOptions{.default_id = 0}, ops::AttentionOptions{.causal = true});
  take(optim::SGDOptions{.momentum = 0.9}, optim::AdamOptions{.amsgrad = true},
       optim::RMSpropOptions{.centered = true}, optim::AdagradOptions{.epsilon = 1e-8},
       optim::LambOptions{.beta_1 = 0.8}, optim::OptimizerOptions{.learning_rate = 0.1},
       optim::GradientOptions{.clipnorm = 1}, optim::WeightDecay{.factor = 0.01},
       optim::VariableGroup{.variables = {"bias"}}, optim::EmaOptions{.momentum = 0.9},
       optim::schedules::CosineDecayOptions{.alpha = 0.1});
  take(FitOptions{.verbose = Verbose::kSilent}, EvaluateOptions{.steps = 3},
       PredictOptions{.steps = 3},
       CompileOptions{.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  take(callbacks::ProgressBarOptions{.live = true}, callbacks::EarlyStoppingOptions{.patience = 2},
       callbacks::ModelCheckpointOptions{.keep = 3},
       callbacks::BackupAndRestoreOptions{.grace_seconds = 9},
       callbacks::TensorBoardOptions{.update_freq = 9});
  take(KubernetesResolverOptions{.pods = 2}, LiteralResolverOptions{.task_id = 1},
       SlurmResolverOptions{.port_base = 9000}, TFConfigResolverOptions{.task_id = 1},
       TlsFiles{.key = "key.pem"});
  take(MirroredStrategy::Options{.devices = {"cpu:0"}},
       CentralStorageStrategy::Options{.parameter_device = "cpu:0"},
       MultiWorkerMirroredStrategy::Options{.worker_timeout = 20s},
       ParameterServerStrategy::Options{.max_staleness = 4});
}
