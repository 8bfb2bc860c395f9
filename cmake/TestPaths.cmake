# "test_paths.hpp": where a test finds the programs of this build and the real input. A program that this build does
# not make is the empty string.

set(SHARED_TENSOR_TESTED_PROGRAMS "")

macro(_test_path constant target)
  if(TARGET ${target})
    string(APPEND _test_paths "inline constexpr const char* ${constant} = \"$<TARGET_FILE:${target}>\";\n")
    list(APPEND SHARED_TENSOR_TESTED_PROGRAMS ${target})
  else()
    string(APPEND _test_paths "inline constexpr const char* ${constant} = \"\";\n")
  endif()
endmacro()

set(_test_paths "#pragma once\n\nnamespace shared_tensor::test {\n\n")
_test_path(kDaemon shared-tensor-server)
_test_path(kKeeper shared-tensor-keeper)
_test_path(kClient shared-tensor)
_test_path(kExamplePlugin example_plugin)
_test_path(kSimulatedPlugin shared_tensor_simulated_plugin)
_test_path(kVoiceActivity voice_activity)
string(APPEND _test_paths
  "inline constexpr const char* kSileroModel = \"${SHARED_TENSOR_DEPS}/silero_vad/silero_vad.jit\";\n"
  "inline constexpr const char* kFrontCenterWav = \"${SHARED_TENSOR_DEPS}/recordings/Front_Center.wav\";\n"
  "inline constexpr const char* kNoiseWav = \"${SHARED_TENSOR_DEPS}/recordings/Noise.wav\";\n"
  "inline constexpr const char* kSourceFolder = \"${PROJECT_SOURCE_DIR}\";\n"
  "inline constexpr const char* kBuildFolder = \"${PROJECT_BINARY_DIR}\";\n"
  "\n}  // namespace shared_tensor::test\n")
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/test_paths.hpp CONTENT "${_test_paths}")
