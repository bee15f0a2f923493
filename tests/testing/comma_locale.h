#pragma once

#include <clocale>
#include <cstdlib>
#include <string>

#include "core/base/temporary_folder.h"

namespace cohort::testing {

// While it lives, the program's locale writes a comma where others have a point.
class CommaLocale {
 public:
  CommaLocale() {
    const std::string make = "localedef -i de_DE -f UTF-8 '" + folder_.path() + "/de_DE.UTF-8'";
    if (std::system((make + " >'" + folder_.path() + "/log' 2>&1").c_str()) != 0) return;
    setenv("LOCPATH", folder_.path().c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    unsetenv("LOCPATH");
  }
  ~CommaLocale() { std::setlocale(LC_ALL, "C"); }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  // False where the system has none (Debian: the package `locales`).
  bool is_set() const { return is_set_; }

 private:
  const TemporaryFolder folder_{"locale"};
  bool is_set_ = false;
};

}  // namespace cohort::testing
