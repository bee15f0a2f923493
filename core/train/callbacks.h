#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "core/train/callback.h"

// The callbacks of Keras by their names, defaults and meanings.
//
// A write that the system refuses in the middle of training (no room, no permission, a disk at
// fault) does not end it. A warning names the file, the reason and what was written before; a file
// that was to be replaced is as it was, of the new one nothing is left, and the next write is made
// as usual. From the first save of ModelCheckpoint or BackupAndRestore on for which that is so,
// "failed_saves" among the results of epochs counts them. Where the last write of a callback was
// refused, fit() throws its Error once training has ended, when the model has its weights; a path
// that cannot be had at all is an error before the first step, and an empty one when the callback
// is made.
//
// Where workers train the same variables, each on its own (ParameterServerStrategy), each worker's
// callbacks look at its own results. Those of the chief alone set the learning rate, restore the
// best weights and write; all end the training of their own worker.
namespace cohort::callbacks {

// Which values of a result are better: lower or higher ones. kAuto: as the compiled metric of that
// name says (metrics::Direction); else lower for names that end in "loss", higher for "acc",
// "accuracy", "auc", "precision" and "recall"; where neither tells, training begins with
// kInvalidArgument.
enum class Mode { kAuto, kMin, kMax };

struct ProgressBarOptions {
  std::ostream* out = nullptr;  // standard output; another one has to outlive the callback
  // Draw over the same line, else print one now and then. Without it: whether it writes to standard
  // output and that is a terminal.
  std::optional<bool> live = {};
};
// "Epoch 1/5" and the line of core/base/progress.h, which does not get wider than the terminal
// while it is drawn over; warnings are printed above it. fit() adds one unless it is told to be
// silent.
CallbackPtr ProgressBar(const ProgressBarOptions& options = {});

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;  // a smaller change is no improvement
  int64_t patience = 0;  // epochs without improvement that are tolerated
  Mode mode = Mode::kAuto;
  bool restore_best_weights = false;  // when training ends
  int64_t start_from_epoch = 0;       // nothing is watched before it
  // An improvement that does not get beyond it ends no waiting.
  std::optional<double> baseline = {};
};
// Ends training when a metric no longer improves. Backups hold how long it has waited, the best
// value and the best weights.
CallbackPtr EarlyStopping(const EarlyStoppingOptions& options = {});

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  // for save_best_only
  bool save_best_only = false;       // with `keep`, what is among so many best
  bool save_weights_only = false;
  Mode mode = Mode::kAuto;
  // After every so many batches; without it and save_interval, after each epoch.
  std::optional<int64_t> save_freq = {};
  // After the first batch that ends so long after the last save, or the beginning of fit(), by
  // Training::elapsed(): on all workers after the same one. More than 0. With save_freq as well,
  // whichever comes first.
  std::optional<std::chrono::duration<double>> save_interval = {};
  // Delete all but so many of the files it wrote: the newest, or the best for save_best_only. None
  // are deleted for 0.
  int64_t keep = 0;
  // What a value has to be better than to be among the best, for save_best_only.
  std::optional<double> initial_value_threshold = {};
};
// Saves checkpoints to `path`, in which {epoch} (from 1), {batch} and names of results are
// replaced, with an optional printf format: "model-{epoch:02d}-{val_loss:.3f}.safetensors". Each
// has these values as metadata, by the same names: load_metadata(path).at("val_loss"). Saves
// nothing, and says so, once the loss or a weight is no finite number. One of the best files is not
// overwritten by a worse one of the same name. The best value is that of what could be written, and
// files are deleted when there is a new one. Backups hold the best value, and which files it
// wrote; those outside the folder of `path`, as of a run that goes on in a copied folder, are not
// deleted. Its folder is made when training begins, and one that cannot be had is an error then, as
// is a path without names to replace that is a folder. save_interval counts from a save that was
// refused, or left out as none of the best, as well. kInvalidArgument for a path without a file's
// name, as "" and "folder/", and with save_freq or save_interval for results "val_...", which no
// batch has, as names in the path or with save_best_only as the monitor.
CallbackPtr ModelCheckpoint(std::string path, const ModelCheckpointOptions& options = {});

struct BackupAndRestoreOptions {
  // It saves after each epoch and, where this is set, after every so many batches of an epoch.
  std::optional<int64_t> save_freq = {};
  // And after the first batch that ends so long after the last save, whatever that was for, as of
  // ModelCheckpoint.
  std::optional<std::chrono::duration<double>> save_interval = {};
  // Once training has ended as planned. A program that goes on for long after fit() keeps them:
  // when it is stopped there and started again, nothing has to be trained any more.
  bool delete_checkpoint = true;
  // For how many seconds a scheduler lets the process live after it has asked it to end (SIGTERM):
  // it saves at once, trains on, and saves again while there is time, or when the epoch ends. With
  // 0 training ends after the step under way.
  double grace_seconds = 0;
};
// Keeps a backup of everything training depends on in `directory`, also when interrupted: the
// model, the place in the data, and what other callbacks keep, after whose turn it saves. When
// training begins and there is one, it continues there: on the same devices the result has the same
// bits as without the break, where callbacks of one's own say what they keep (Callback::state). But
// what several replicas each have their own of (Synchronization::kOnRead: moving statistics,
// gradients that are accumulated) is kept as one merged value, and shared out again: that agrees up
// to rounding. Where another number of workers goes on, what follows has other bits, and an epoch
// that was under way begins anew, with the weights that it has given; with steps_per_epoch its
// other steps are of a new pass over the data. The backup before it is kept too: where the newest
// turns out to be damaged, a warning says so, and training continues from the older one. Under
// ParameterServerStrategy it is the chief's: its place in its data, what it has to itself of the
// model (moving statistics), and the other variables where those on the servers have had fewer
// updates; else a line says how many they have had. Where its workers update asynchronously, there
// are no bits to repeat. Once the loss or a weight is no finite number, the last backup stays as it
// is, and a warning says so. While it saves, the disk has to have room for a third; a save that the
// system refuses leaves both as they are. An interrupt at which it refuses ends fit() with that
// error rather than kCancelled, which says that the job may be started again. When training has
// ended as planned, a refused backup is an error only where backups are to stay; they also stay
// where fit() throws, on any worker, what another callback has thrown when training ended, or its
// last write. The folder is made as ModelCheckpoint's is, and is one job's at a time: while fit()
// runs, the chief has a lock in it, "backup.lock". Another job says so and waits, for two minutes
// at most, and then ends with kFailedPrecondition. Where the lock cannot be had, as on a file
// system without, a warning says so, and training goes on.
CallbackPtr BackupAndRestore(std::string directory, const BackupAndRestoreOptions& options = {});

struct CsvLoggerOptions {
  char separator = ',';  // not a letter, a digit, a sign, a point, a quote or a line end
  bool append = false;   // to what the file holds
};
// A line for each epoch. The columns are the results of the first epoch and, where fit() has
// validation_data, of its validation, whether or not that epoch was validated; "NA" for what an
// epoch lacks. Names are quoted where RFC 4180 asks for it. The file's folder is made where it is
// missing. Backups hold the columns and the length of the file, from which it goes on: lines of
// epochs that are trained again are cut off. Lines that the system refuses are written with the
// next one.
CallbackPtr CSVLogger(std::string path, const CsvLoggerOptions& options = {});

// Sets the learning rate of each epoch (from 0), given that of the epoch before; once, also where
// training goes on in the middle of the epoch: backups hold which one it has set last. Adds
// "learning_rate" to the results.
CallbackPtr LearningRateScheduler(
    std::function<double(int64_t epoch, double learning_rate)> schedule);

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;  // in (0, 1)
  int64_t patience = 10;
  Mode mode = Mode::kAuto;
  double min_delta = 1e-4;
  // After a reduction, patience counts from the last of so many epochs on.
  int64_t cooldown = 0;
  double min_lr = 0;
};
// Multiplies the learning rate by `factor` when a metric no longer improves. Adds "learning_rate"
// to the results. Backups hold how long it has waited, and the best value. A rate that follows a
// schedule is kFailedPrecondition when training begins.
CallbackPtr ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

struct StepReportOptions {
  std::ostream* out = nullptr;  // standard error; another one has to outlive the callback
};
// A line for each epoch, on the chief, that tells what its steps took their time for there
// (StepShares), with workers for which they waited:
//   epoch 2: step 14.2 ms: compute 81 %, input 3 %, communication 9 %, waiting for worker:1 7 %
// Whoever does not ask for it is told once by fit(), by a warning that says what to do, when
// waiting for input or for communication takes more than 30 % of the steps of an epoch, and a
// second or more.
CallbackPtr StepReport(const StepReportOptions& options = {});

// Ends fit() with kOutOfRange in the step in which the loss is found to be no finite number, and
// not just at the end of the epoch, as fit() does by itself; also with allow_nan_loss.
CallbackPtr TerminateOnNaN();

// Ends training after the first batch, or validation, at whose end fit() has taken longer than
// `limit`, by Training::elapsed(): after the same one on all workers that train in step. The epoch
// then ends as any other, and is validated, for which a limit has to leave time. As after the last
// epoch, BackupAndRestore removes its backups: a job that is to go on later is sent SIGTERM
// instead. kInvalidArgument unless the limit is more than 0.
CallbackPtr TimeLimit(std::chrono::duration<double> limit);

struct CheckReplicasOptions {
  int64_t every_steps = 100;  // as the optimizer counts them, over all fits: 1 at least
};
// Ends fit() with kDataLoss, on all workers, when copies of a variable, of the model or the
// optimizer, are found to differ between replicas: check_replicas() says how they come to, which
// are compared and what the error names. It looks before the first step, after every so many, and
// when training ends, before callbacks that act last save. kFailedPrecondition when training begins
// under ParameterServerStrategy.
CallbackPtr CheckReplicas(const CheckReplicasOptions& options = {});

// Validates by the averages that the optimizer keeps (optim::EmaOptions), which are exchanged with
// the weights for as long; an error of validation leaves them exchanged, until
// Optimizer::swap_averages() is called once more. What else looks at weights in training sees those
// that are trained: the best ones that EarlyStopping restores, in the place of the averages that
// fit() ends with, are such. kFailedPrecondition when training begins and the optimizer keeps none.
CallbackPtr SwapEMAWeights();

struct TensorBoardOptions {
  // Also batch_loss and so on, after every so many batches.
  std::optional<int64_t> update_freq = {};
};
// Writes results as scalars to `directory`/train and `directory`/validation, tags "epoch_loss" and
// so on, and the strategy's histograms (Strategy::take_report). In `directory`/train there is also
// the learning rate at the end of the epoch, "epoch_learning_rate", and what steps took their time
// for (StepShares): "epoch_step_ms", the mean time of a step, "epoch_compute_share",
// "epoch_input_share", "epoch_communication_share" where that is known, and with several workers
// "epoch_late_workers_share"; a result of such a name goes before. Those that the system refuses
// are left out. The folder is made as ModelCheckpoint's is.
CallbackPtr TensorBoard(std::string directory, const TensorBoardOptions& options = {});

}  // namespace cohort::callbacks
