#include "strategies/cluster/launcher/options.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/base/flags.h"
#include "core/base/quote.h"
#include "core/base/system_error.h"
#include "strategies/cluster/gpu_list.h"
#include "strategies/cluster/launcher/messages.h"

namespace cohort::launcher {
namespace {

constexpr int kMaxTasks = 1000;                // of one job
constexpr int kMaxRestarts = 1'000'000;        // of all tasks, and of each
constexpr double kMaxGrace = 7 * 24 * 3600;    // seconds
constexpr double kMaxTime = 10 * 365 * 86400;  // seconds

// Flags that never take the next argument as their value.
constexpr std::array<std::string_view, 9> kSwitches = {
    "--chief",           "--evaluator", "--standalone",
    "--allow_plaintext", "--quiet",     "--no_prefix",
    "--version",         "--help",      "-h"};

// The index of the first argument that belongs to the program.
int end_of_flags(int argc, char** argv) {
  int i = 1;
  while (i < argc && argv[i][0] == '-') {
    const std::string_view flag = argv[i++];
    if (flag == "--") break;
    const bool is_switch = std::find(kSwitches.begin(), kSwitches.end(), flag) != kSwitches.end();
    const bool value_follows = !is_switch && flag.find('=') == std::string_view::npos;
    if (value_follows && i < argc) ++i;
  }
  return i;
}

// Of those that tasks share out by LOCAL_RANK, at least 1.
int count_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int gpus =
      visible ? static_cast<int>(config::listed_gpus(visible).size()) : config::host_gpus();
  if (gpus == 0) {
    invalid("--workers=gpu finds no GPU: ",
            visible ? str("CUDA_VISIBLE_DEVICES=", quote(visible), " names none")
                    : "this host has no driver of any");
  }
  return gpus;
}

int parse_workers(Flags& flags, int fallback) {
  const std::string text = flags.text(
      "workers", std::to_string(fallback),
      "tasks that train: a number, auto for one on each core, or gpu for one on each GPU");
  if (text == "auto") return std::min(available_cores(), kMaxTasks);
  if (text == "gpu") return std::min(count_gpus(), kMaxTasks);
  int workers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), workers);
  if (error != std::errc() || end != text.data() + text.size() || workers < 0 ||
      workers > kMaxTasks) {
    invalid("--workers=", text, " is not allowed: expected an integer, at least 0, at most ",
            kMaxTasks, ", auto or gpu");
  }
  return workers;
}

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_executable(const std::string& path) {
  return is_file(path) && access(path.c_str(), X_OK) == 0;
}

// Why what is there is not executable.
const char* lack_of_execution(const std::string& path) {
  if (!is_file(path)) return "is not a file";
  struct statvfs system {};
  if (statvfs(path.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return "lies on a file system that is mounted noexec, from which no program can be run";
  return "is not executable (chmod +x makes it so)";
}

// With as many workers and parameter servers as there may ever be where other nodes have some, too.
std::vector<JobSize> jobs(const Options& options) {
  const int most = static_cast<int>(kMaxTasksOfJob);
  return {{"chief", options.chief},
          {"worker", options.nodes ? most : options.workers},
          {"ps", options.nodes ? most : options.ps},
          {"evaluator", options.evaluator}};
}

// What flags of torchrun, Horovod and MPI mean here.
std::map<std::string, std::string> flags_elsewhere() {
  const std::string workers = "--workers", log_dir = "--log_dir", rendezvous = "--rendezvous",
                    nodes = "--nnodes, and cohort-run on each host",
                    module = "cohort-run python3 -m MODULE";
  return {{"n", workers},
          {"np", workers},
          {"nproc", workers},
          {"nproc_per_node", workers},
          {"num_proc", workers},
          {"max_restarts", "--restarts"},
          {"local_ranks_filter", "--show"},
          {"numa_binding", "--bind=cores"},
          {"bind_to", "--bind=cores"},
          {"tee", log_dir},
          {"t", log_dir},
          {"redirects", log_dir},
          {"r", log_dir},
          {"output_filename", log_dir},
          {"rdzv_backend", rendezvous},
          {"rdzv_endpoint", rendezvous},
          {"rdzv_conf", "--join_timeout or --last_call"},
          {"rdzv_id", "--job_id"},
          {"master_addr", rendezvous},
          {"master_port", rendezvous},
          {"local_addr", "--host"},
          {"start_timeout", "--join_timeout"},
          {"H", nodes},
          {"hosts", nodes},
          {"hostfile", nodes},
          {"min_np", "--nnodes=MIN:MAX"},
          {"max_np", "--nnodes=MIN:MAX"},
          {"role", "--workers, --ps, --chief or --evaluator"},
          {"x", "NAME=VALUE cohort-run"},
          {"m", module},
          {"module", module}};
}

}  // namespace

Options parse_options(int argc, char** argv) {
  const int first = end_of_flags(argc, argv);
  std::vector<char*> own(argv, argv + first);
  if (own.back() == std::string_view("--")) own.pop_back();
  std::string name = "cohort-run";
  own[0] = name.data();

  Flags flags(static_cast<int>(own.size()), own.data(),
              "Starts a cluster of any program, on this host or, with --nnodes, on several.",
              "PROGRAM [ARGS...]");
  Options options;
  options.workers = parse_workers(flags, options.workers);
  options.ps = static_cast<int>(
      flags.integer("ps", options.ps, "parameter servers", {.min = 0, .max = kMaxTasks}));
  options.chief = flags.boolean("chief", options.chief, "a chief beside the workers");
  options.evaluator = flags.boolean("evaluator", options.evaluator, "an evaluator on the side");
  options.restarts = static_cast<int>(flags.integer(
      "restarts", options.restarts, "how often all tasks are restarted after a failure",
      {.min = 0, .max = kMaxRestarts}));
  options.task_restarts = static_cast<int>(
      flags.integer("task_restarts", options.task_restarts,
                    "how often a worker, parameter server or evaluator of a job with --ps is "
                    "restarted alone, while the others go on",
                    {.min = 0, .max = kMaxRestarts}));
  options.grace = std::chrono::duration<double>(flags.number(
      "grace", options.grace.count(), "seconds between asking a task to end and killing it",
      {.min = 0, .max = kMaxGrace}));
  options.timeout = std::chrono::duration<double>(
      flags.number("timeout", options.timeout.count(),
                   "seconds after which the run is ended; 0: never", {.min = 0, .max = kMaxTime}));
  options.log_dir = flags.text("log_dir", options.log_dir, "folder for a log file of each task",
                               {.may_be_empty = false});
  options.show = ShownTasks(flags.text(
      "show", "", "whose lines are shown: tasks and jobs, as in worker:0,ps; default: all",
      {.may_be_empty = false}));
  options.bind_to_cores =
      flags.text("bind", "none", "cores: each task of this host has as many of its own",
                 {.choices = {"none", "cores"}}) == "cores";
  options.standalone =
      flags.boolean("standalone", options.standalone,
                    "start a cluster even as one of several tasks of another launcher");
  options.quiet =
      flags.boolean("quiet", options.quiet, "print of cohort-run itself only errors and failures");
  options.no_prefix = flags.boolean("no_prefix", options.no_prefix,
                                    "show lines without the names of the tasks that print them");
  options.version = flags.boolean("version", options.version, "print the version, and end");
  options.nodes = parse_node_options(flags);
  flags.finish(flags_elsewhere());
  if (options.version) return options;
  if (options.workers == 0 && !options.chief && !options.nodes) {
    invalid("--workers=0 leaves nobody to train: expected at least 1, or --chief");
  }
  if (options.nodes && options.workers + options.ps == 0) {
    invalid("--workers=0 without --ps leaves nothing to run on all nodes but the first");
  }
  if (options.nodes && options.nodes->node_failures > 0 &&
      (options.nodes->min_nodes == options.nodes->max_nodes || options.restarts == 0)) {
    invalid("--node_failures=", options.nodes->node_failures,
            " is for jobs that can go on with fewer nodes: expected --nnodes=MIN:MAX and "
            "--restarts=1 or more beside it");
  }
  options.show.check(jobs(options));
  options.command.assign(argv + first, argv + argc);
  if (options.command.empty() || options.command[0].empty()) {
    invalid("no program is given: expected cohort-run [flags] PROGRAM [ARGS...]");
  }
  return options;
}

std::string too_long(double seconds) {
  return str("the run has lasted ", seconds, " s (--timeout)");
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) != 0) {
      if (code_of_errno(errno) != Code::kNotFound) fail_errno("reach", name);
      fail(Code::kNotFound, "no such program: ", name);
    }
    if (is_executable(name)) return name;
    fail(Code::kPermissionDenied, name, " ", lack_of_execution(name));
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = str(folder.empty() ? "." : folder, "/", name);
    if (is_executable(candidate)) return candidate;
  }
  fail(Code::kNotFound, "no program ", name, " in PATH",
       is_executable("./" + name) ? str("; did you mean ./", name, "?") : "");
}

}  // namespace cohort::launcher
