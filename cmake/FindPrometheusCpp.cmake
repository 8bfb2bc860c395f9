# prometheus-cpp's core alone: PrometheusCpp::Core. (Its own CMake package also asks for a web server and for curl, which
# only its other libraries need.)
find_path(PrometheusCpp_INCLUDE_DIR prometheus/text_serializer.h)
find_library(PrometheusCpp_LIBRARY prometheus-cpp-core)
mark_as_advanced(PrometheusCpp_INCLUDE_DIR PrometheusCpp_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PrometheusCpp REQUIRED_VARS PrometheusCpp_LIBRARY PrometheusCpp_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install prometheus-cpp-dev, or run scripts/install_packages")
# Only programs that have a server depend on the library when they run (--as-needed).
if(PrometheusCpp_FOUND AND NOT TARGET PrometheusCpp::Core)
  add_library(PrometheusCpp::Core INTERFACE IMPORTED)
  set_target_properties(PrometheusCpp::Core PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${PrometheusCpp_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--as-needed;${PrometheusCpp_LIBRARY};-Wl,--pop-state")
endif()
