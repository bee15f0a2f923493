#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "core/train/callback.h"

// The callbacks of Keras by their names, defaults and meanings.
namespace cohort::callbacks {

// Which way a metric is better; kAuto: higher for names that end in "acc", "accuracy", "auc",
// "precision" or "recall", else lower.
enum class Mode { kAuto, kMin, kMax };

struct ProgressBarOptions {
  std::ostream* out = nullptr;  // standard output
  std::optional<bool> live;  // draw over the same line, as on a terminal; else a line now and then
};
// "Epoch 1/5" and the line of core/base/progress.h. fit() adds one unless it is told to be silent.
CallbackPtr ProgressBar(const ProgressBarOptions& options = {});

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;  // a smaller change is no improvement
  int64_t patience = 0;  // epochs without improvement that are tolerated
  Mode mode = Mode::kAuto;
  bool restore_best_weights = false;  // when training ends
  int64_t start_from_epoch = 0;       // nothing is watched before it
};
// Ends training when a metric no longer improves.
CallbackPtr EarlyStopping(const EarlyStoppingOptions& options = {});

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  // for save_best_only
  bool save_best_only = false;
  bool save_weights_only = false;
  Mode mode = Mode::kAuto;
  std::optional<int64_t> save_freq;  // after every so many batches; without it, after each epoch
  int64_t keep = 0;                  // delete all but so many of the newest files it wrote; 0: none
};
// Saves checkpoints to `path`, in which {epoch} (from 1), {batch} and names of results are
// replaced, with an optional printf format: "model-{epoch:02d}-{val_loss:.3f}.safetensors". Saves
// nothing once the loss is no number.
CallbackPtr ModelCheckpoint(std::string path, const ModelCheckpointOptions& options = {});

struct BackupAndRestoreOptions {
  std::optional<int64_t> save_freq;  // after every so many batches; without it, after each epoch
  bool delete_checkpoint = true;     // once training has ended as planned
};
// Keeps a backup of everything training depends on in `directory`, also when interrupted. When
// training begins and there is one, it continues there: the result has the same bits as without the
// break. The backup before it is kept too: where the newest turns out to be damaged, a warning says
// so, and training continues from the older one. Under ParameterServerStrategy it is the chief's:
// its place in its data, and the variables where nobody has trained them since the servers began.
// Once the loss is no number, the last backup stays as it is.
CallbackPtr BackupAndRestore(std::string directory, const BackupAndRestoreOptions& options = {});

struct CsvLoggerOptions {
  char separator = ',';
  bool append = false;  // to what the file holds
};
// A line for each epoch with the columns that the first epoch had; "NA" for what an epoch lacks.
// The file's folder is made where it is missing.
CallbackPtr CSVLogger(std::string path, const CsvLoggerOptions& options = {});

// Sets the learning rate of each epoch (from 0), given that of the epoch before. Adds
// "learning_rate" to the results.
CallbackPtr LearningRateScheduler(
    std::function<double(int64_t epoch, double learning_rate)> schedule);

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;  // in (0, 1)
  int64_t patience = 10;
  Mode mode = Mode::kAuto;
  double min_delta = 1e-4;
  int64_t cooldown = 0;  // epochs after a reduction in which nothing is watched
  double min_lr = 0;
};
// Multiplies the learning rate by `factor` when a metric no longer improves. Adds "learning_rate"
// to the results.
CallbackPtr ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

// Ends fit() with kOutOfRange when the loss is not a finite number.
CallbackPtr TerminateOnNaN();

struct TensorBoardOptions {
  std::optional<int64_t> update_freq;  // also batch_loss and so on, after every so many batches
};
// Writes results as scalars to `directory`/train and `directory`/validation, tags "epoch_loss" and
// so on, and the strategy's histograms (Strategy::take_report).
CallbackPtr TensorBoard(std::string directory, const TensorBoardOptions& options = {});

}  // namespace cohort::callbacks
