# The target Cohort::cohort: the library behind "cohort.h". Paths follow from where this file lies.
if(NOT TARGET Cohort::cohort)
  get_filename_component(_cohort_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(Cohort::cohort SHARED IMPORTED)
  set_target_properties(Cohort::cohort PROPERTIES
    IMPORTED_LOCATION "${_cohort_prefix}/lib/libcohort.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_cohort_prefix}/include/cohort"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  unset(_cohort_prefix)
endif()
