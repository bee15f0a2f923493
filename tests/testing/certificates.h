#pragma once

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "core/base/temporary_folder.h"
#include "strategies/cluster/coordination/security.h"

namespace cohort::testing {

// Certificates made by openssl, in a folder of their own that goes with this object: of two
// authorities, "ca" and "other-ca"; "both-cas" are the two in one file.
class Certificates {
 public:
  // The names that certificates carry where nothing else is said.
  static constexpr const char* kNames = "IP:127.0.0.1,DNS:leader.example";

  Certificates() {
    authority("ca");
    authority("other-ca");
    std::ofstream both(path("both-cas.pem"));
    for (const char* one : {"ca", "other-ca"})
      both << std::ifstream(path(std::string(one) + ".pem")).rdbuf();
    both.close();
    sign("task");
  }

  // Makes NAME.pem and NAME.key, valid for `days`, with subject alternative names as openssl wants
  // them.
  void sign(const std::string& name, const std::string& names = kNames,
            const std::string& ca = "ca", int days = 10) const {
    std::ofstream(path("extensions")) << "subjectAltName=" << names << "\n";
    run("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " +
        name + ".key -out request");
    run("x509 -req -in request -CA " + ca + ".pem -CAkey " + ca + ".key -CAcreateserial -days " +
        std::to_string(days) + " -extfile extensions -out " + name + ".pem");
  }

  std::string path(const std::string& file) const { return folder_.path() + "/" + file; }
  TlsFiles files(const std::string& task = "task", const std::string& ca = "ca") const {
    return {path(task + ".pem"), path(task + ".key"), path(ca + ".pem")};
  }

 private:
  void run(const std::string& command) const {
    const std::string all = "cd " + folder_.path() + " && openssl " + command + " >log 2>&1";
    if (std::system(all.c_str()) != 0) throw std::runtime_error(all);
  }
  void authority(const std::string& name) const {
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=" + name +
        " -keyout " + name + ".key -out " + name + ".pem");
  }

  const TemporaryFolder folder_{"certificates"};
};

}  // namespace cohort::testing
