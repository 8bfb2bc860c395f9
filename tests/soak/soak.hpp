#pragma once

#include <string>

namespace shared_tensor::test {

// The environment of a client process.
inline constexpr const char* kSoakUrl = "SOAK_URL";
inline constexpr const char* kSoakFolder = "SOAK_FOLDER";
inline constexpr const char* kSoakSeed = "SOAK_SEED";

inline std::string calls_file(const std::string& folder) { return folder + "/calls"; }      // keys that have run
inline std::string answers_file(const std::string& folder) { return folder + "/answers"; }  // keys that were answered

}  // namespace shared_tensor::test
