#include "strategies/cluster/pmix.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <type_traits>
#include <unistd.h>

#include "core/base/error.h"
#include "strategies/cluster/environment.h"

namespace cohort {
namespace {

// Of PMIx 2 to 5. Loaded when it is asked, as MPI is: no program needs it to start.
constexpr char kName[] = "libpmix.so.2";

// What is used of the library's binary interface, which all of that name have in common (PMIx
// Standard, chapter on data structures). Its header lies in another folder on every system.
constexpr int kSuccess = 0;
constexpr uint16_t kBool = 1, kString = 3;

struct Process {
  char job[256];
  uint32_t rank;
};
struct Value {
  uint16_t type;
  union {
    bool flag;
    char* string;
    char room[24];  // for the longest of the others
  };
};
struct Info {
  char key[512];
  uint32_t directives;
  Value value;
};
static_assert(offsetof(Process, rank) == 256 && offsetof(Value, string) == 8 &&
              offsetof(Info, value) == 520 && sizeof(Value) == 32 && sizeof(Info) == 552);

struct Library {
  int (*init)(Process* self, Info* options, size_t count);
  int (*get)(const Process* process, const char* key, const Info* options, size_t count,
             Value** value);
  int (*finalize)(const Info* options, size_t count);
  const char* (*error_string)(int status);
};

Library load() {
  void* const handle = dlopen(kName, RTLD_NOW);
  if (handle == nullptr)
    fail(Code::kUnavailable, "PMIx cannot be loaded: ", dlerror(),
         "; the Debian package libpmix2 brings it");
  const auto function = [&](const char* name, auto& pointer) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr) fail(Code::kUnavailable, kName, " has no ", name);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(symbol);
  };
  Library pmix{};
  function("PMIx_Init", pmix.init);
  function("PMIx_Get", pmix.get);
  function("PMIx_Finalize", pmix.finalize);
  function("PMIx_Error_string", pmix.error_string);
  return pmix;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

void check(int status, const std::string& doing) {
  if (status != kSuccess)
    fail(Code::kUnavailable, "PMIx: ", library().error_string(status), ", ", doing);
}

pid_t connected = 0;  // the process that has connected

// A forked process has its parent's exit handlers, and none of its threads, for which this waits.
void disconnect() {
  if (getpid() == connected) library().finalize(nullptr, 0);
}

// Until the process exits: PMIx counts who connects, so that MPI may start and end meanwhile. A
// process that disconnects before MPI starts is struck off what the others of its host wait for
// there, and comes back to find that they have not waited.
Process connect() {
  // Without it the library would take this process for a job of its own.
  if (!process_environment("PMIX_NAMESPACE"))
    fail(Code::kUnavailable, "no PMIx server has started this process: PMIX_NAMESPACE is not set");
  Process self{};
  check(library().init(&self, nullptr, 0), "connecting to the launcher");
  connected = getpid();
  std::atexit(disconnect);
  return self;
}

// Of what the launcher has told this process; the server is not asked, which might wait for others.
Info only_what_is_known() {
  Info info{};
  std::strcpy(info.key, "pmix.optional");
  info.value.type = kBool;
  info.value.flag = true;
  return info;
}

}  // namespace

std::string pmix_host(int rank) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const Process self = connect();
  Process asked = self;
  asked.rank = static_cast<uint32_t>(rank);
  const Info info = only_what_is_known();
  Value* value = nullptr;
  check(library().get(&asked, "pmix.hname", &info, 1, &value),
        str("asking for the host of rank ", rank));
  std::string host;
  if (value->type == kString && value->string != nullptr) {
    host = value->string;
    std::free(value->string);
  }
  std::free(value);
  if (host.empty()) fail(Code::kUnavailable, "PMIx has no name for the host of rank ", rank);
  return host;
}

}  // namespace cohort
