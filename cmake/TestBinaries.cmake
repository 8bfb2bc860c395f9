# Few test binaries: linking and starting with libtorch is what costs. Each has a folder for every module (or subject),
# whose CMakeLists.txt says target_sources(<binary> PRIVATE ...); the module of that name is linked of itself.

include(Catch)
include(TestPaths)

# A test that hangs fails after a minute, or ten times that under a sanitizer; one between processes after ten: where
# others use the machine, processes that take turns wait for it at each turn.
set(SHARED_TENSOR_TEST_TIMEOUT 60)
set(SHARED_TENSOR_INTEGRATION_TIMEOUT 600)
if(SHARED_TENSOR_SANITIZE)
  set(SHARED_TENSOR_TEST_TIMEOUT 600)
endif()

# Where files are compiled together (CMAKE_UNITY_BUILD), those of one folder are: helpers in it have names of their own.
function(shared_tensor_compile_folders binary)
  get_target_property(sources ${binary} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} TARGET_DIRECTORY ${binary} PROPERTIES UNITY_GROUP "${folder}")
  endforeach()
  set_target_properties(${binary} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# Compiles these files by themselves always.
function(shared_tensor_compile_alone binary)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${binary} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

macro(shared_tensor_add_tests binary label)
  file(GLOB subjects CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  if(subjects)
    add_executable(${binary})
    shared_tensor_own_code(${binary})
    # Half the time to compile; what they test is optimised.
    target_compile_options(${binary} PRIVATE $<$<CONFIG:Release>:-O0>)
    target_include_directories(${binary} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/generated)
    target_link_libraries(${binary} PRIVATE Catch2::Catch2WithMain)
    foreach(subject IN LISTS subjects)
      get_filename_component(subject ${subject} DIRECTORY)
      get_filename_component(module ${subject} NAME)
      if(TARGET shared_tensor_${module})
        target_link_libraries(${binary} PRIVATE shared_tensor_${module})
      endif()
      add_subdirectory(${subject})
    endforeach()
    shared_tensor_compile_folders(${binary})
    set(timeout ${SHARED_TENSOR_TEST_TIMEOUT})
    if("${label}" STREQUAL "integration")
      set(timeout ${SHARED_TENSOR_INTEGRATION_TIMEOUT})
    endif()
    catch_discover_tests(${binary} DISCOVERY_MODE PRE_TEST
      PROPERTIES LABELS ${label} TIMEOUT ${timeout})
  endif()
endmacro()
