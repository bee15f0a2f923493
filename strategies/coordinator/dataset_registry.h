#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/distribute/input_options.h"

namespace cohort {

// Makes the dataset of a worker, once for each coordinator: all passes are over that one, several
// perhaps at a time. `context` says which of how many input pipelines it is, and else what
// ParameterServerStrategy::input_context() does: the replicas in sync are those of one worker.
using DatasetFunction = std::function<data::Dataset(const InputContext& context)>;

// Gives a dataset of this program a name, under which ClusterCoordinator::create_per_worker_dataset
// finds it on the workers: C++ cannot be sent to them. To be called before run_worker_server, in
// the program of the workers; one program that plays all roles registers once, at its beginning.
// kAlreadyExists for a name that is taken. Thread-safe.
void register_dataset(const std::string& name, DatasetFunction make);

// The names that are taken, in alphabetical order.
std::vector<std::string> registered_datasets();

namespace coordinator {

// kNotFound, listing the names there are.
data::Dataset make_registered_dataset(const std::string& name, const InputContext& context);

}  // namespace coordinator
}  // namespace cohort
