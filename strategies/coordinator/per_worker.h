#pragma once

#include <memory>
#include <string>
#include <utility>

namespace cohort {

class ClusterCoordinator;

namespace coordinator {
class ResourceHandle;
class ResourceTable;
}  // namespace coordinator

// One value on each worker, and on each of its replicas
// (ClusterCoordinator::create_per_worker_resource). As an argument of schedule() it stands for that
// of the worker which executes the function. A worker that starts again makes its value again. A
// cheap handle: the workers let go of it with the last copy.
class PerWorkerValues {
 public:
  explicit PerWorkerValues(std::shared_ptr<const coordinator::ResourceHandle> handle)
      : handle_(std::move(handle)) {}
  const std::shared_ptr<const coordinator::ResourceHandle>& handle() const { return handle_; }

 private:
  std::shared_ptr<const coordinator::ResourceHandle> handle_;
};

// One pass over a dataset on each worker, at its own pace. As an argument of schedule() for a
// parameter that takes a batch it stands for the next batch of the worker which executes the
// function, of which each of the worker's replicas gets its rows (split_rows); at the end of the
// data that is kOutOfRange, of which is_end_of_data() is true (end_of_data.h). A worker that starts
// again begins anew, and a batch whose worker is lost is lost with it: no element is promised to be
// seen, or only once. A cheap handle: the workers let go of the pass with the last copy.
class PerWorkerIterator {
 public:
  explicit PerWorkerIterator(std::shared_ptr<const coordinator::ResourceHandle> handle)
      : handle_(std::move(handle)) {}
  const std::shared_ptr<const coordinator::ResourceHandle>& handle() const { return handle_; }

 private:
  std::shared_ptr<const coordinator::ResourceHandle> handle_;
};

// A dataset of each worker's program (register_dataset). A value type that is cheap to copy.
class PerWorkerDataset {
 public:
  PerWorkerDataset(std::weak_ptr<coordinator::ResourceTable> table, std::string name)
      : table_(std::move(table)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Begins a pass on every worker, whose number among the coordinator's passes over this dataset is
  // IterateOptions::epoch there: each has another order where the dataset shuffles, and a worker
  // that starts again has the same one as before. An error of the dataset's function, or that no
  // dataset of this name is registered, is that of each function which uses the pass.
  // kFailedPrecondition when the coordinator has ended.
  PerWorkerIterator iterate() const;

 private:
  std::weak_ptr<coordinator::ResourceTable> table_;
  std::string name_;
};

}  // namespace cohort
