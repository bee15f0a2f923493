# The target Cohort::cohort: the library behind "cohort.h". Paths follow from where this file lies.
foreach(_cohort_component IN LISTS Cohort_FIND_COMPONENTS)
  set(Cohort_${_cohort_component}_FOUND FALSE)
  if(Cohort_FIND_REQUIRED_${_cohort_component})
    set(Cohort_FOUND FALSE)
    set(Cohort_NOT_FOUND_MESSAGE
      "Cohort has no components, and so no ${_cohort_component}: Cohort::cohort is all of it")
  endif()
endforeach()
if(NOT TARGET Cohort::cohort)
  get_filename_component(_cohort_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(Cohort::cohort SHARED IMPORTED)
  set_target_properties(Cohort::cohort PROPERTIES
    IMPORTED_LOCATION "${_cohort_prefix}/lib/libcohort.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_cohort_prefix}/include/cohort"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  unset(_cohort_prefix)
endif()
