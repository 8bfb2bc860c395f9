# The installed package: find_package(shared_tensor) gives shared_tensor::shared_tensor, shared_tensor::headers and
# shared_tensor_add_plugin(); pkg-config gives shared_tensor and shared_tensor_plugin. Its folder may be moved.

include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/shared_tensor)
install(TARGETS shared_tensor_headers shared_tensor EXPORT shared_tensor
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT shared_tensor NAMESPACE shared_tensor:: FILE shared_tensorTargets.cmake
  DESTINATION ${package_folder} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)

# Only what the library really links is asked for again.
get_property(links GLOBAL PROPERTY SHARED_TENSOR_LINKS)
set(SHARED_TENSOR_NEEDS "")
foreach(package IN ITEMS Threads OpenSSL ZLIB Zstd Lmdb PrometheusCpp nlohmann_json cxxopts)
  if(links MATCHES "${package}::")
    string(APPEND SHARED_TENSOR_NEEDS "find_dependency(${package})\n")
  endif()
endforeach()

configure_package_config_file(cmake/shared_tensorConfig.cmake.in ${PROJECT_BINARY_DIR}/shared_tensorConfig.cmake
  INSTALL_DESTINATION ${package_folder} PATH_VARS SHARED_TENSOR_LIBRARY_FOLDER)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shared_tensorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shared_tensorConfig.cmake ${PROJECT_BINARY_DIR}/shared_tensorConfigVersion.cmake
  cmake/SharedTensorPlugin.cmake cmake/FindLibTorch.cmake cmake/FindZstd.cmake cmake/FindLmdb.cmake
  cmake/FindPrometheusCpp.cmake
  cmake/DependencyFolder.cmake cmake/dependencies.json
  DESTINATION ${package_folder} COMPONENT dev)

# For builds without CMake.
file(RELATIVE_PATH SHARED_TENSOR_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
foreach(name IN ITEMS shared_tensor shared_tensor_plugin)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()
