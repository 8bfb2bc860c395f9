# Packages for Debian, made by scripts/package: cpack asks dpkg-shlibdeps which packages the programs need.
#
#   shared-tensor-server      the daemon, its units for systemd, its user, /etc/shared_tensor.toml
#   shared-tensor             the command line
#   shared-tensor-models      what a server needs for --model, beside a libtorch that pip installs
#   libshared-tensor-dev      headers and library for programs and plugins in C++
#   python3-shared-tensor     the Python package; only with SHARED_TENSOR_PYTHON_TREE

set(SHARED_TENSOR_PYTHON_TREE "" CACHE PATH "Folder with an unpacked wheel, for the package python3-shared-tensor")
set(SHARED_TENSOR_MAINTAINER "shared_tensor <maintainers@shared-tensor.example>" CACHE STRING "Maintainer of the packages")

# Debian's manual pages are compressed.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/CompressManuals.cmake)
# Debian wants the changes in the folder of each package: those of the project, and those of the packages.
find_program(SHARED_TENSOR_GZIP gzip)
mark_as_advanced(SHARED_TENSOR_GZIP)
if(NOT SHARED_TENSOR_GZIP OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
set(package_version ${PROJECT_VERSION}-1)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # or SOURCE_DATE_EPOCH
file(WRITE ${PROJECT_BINARY_DIR}/changelog.Debian "shared-tensor (${package_version}) bookworm; urgency=medium

  * Version ${PROJECT_VERSION}: changelog.gz says what is new.

 -- ${SHARED_TENSOR_MAINTAINER}  ${now}
")
function(_compress text name)
  execute_process(COMMAND ${SHARED_TENSOR_GZIP} -9 -n -c ${text} OUTPUT_FILE ${PROJECT_BINARY_DIR}/${name}.gz
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()
_compress(${PROJECT_SOURCE_DIR}/CHANGELOG.md changelog)
_compress(${PROJECT_BINARY_DIR}/changelog.Debian changelog.Debian)

# These files belong to packages only: `cmake --install` installs nothing outside of its prefix.
function(_package component name)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/copyright ${PROJECT_BINARY_DIR}/changelog.gz
    ${PROJECT_BINARY_DIR}/changelog.Debian.gz DESTINATION share/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
  string(TOUPPER ${component} variable)
  set(CPACK_DEBIAN_${variable}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

set(same_version "(= ${package_version})")
_package(server shared-tensor-server)
set(CPACK_COMPONENT_SERVER_DESCRIPTION "server of functions, models and tensors
The daemon shares functions of plugins, models and tensors with other
processes, by JSON-RPC over HTTP. On one host tensors are not copied.")
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS "shared-tensor-models ${same_version}")
foreach(file IN ITEMS conffiles postinst prerm postrm)
  list(APPEND CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/${file})
endforeach()
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(GLOB units CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/deploy/systemd/*.service ${PROJECT_SOURCE_DIR}/deploy/systemd/*.socket)
install(FILES ${units} DESTINATION lib/systemd/system COMPONENT server EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/shared_tensor.toml DESTINATION /etc COMPONENT server EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/docs/deploying.md DESTINATION share/doc/shared-tensor-server COMPONENT server
  EXCLUDE_FROM_ALL)

_package(client shared-tensor)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "calls the functions of a shared-tensor-server
A command that calls functions, follows tasks, and reads and writes tensors.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION net)

_package(dev libshared-tensor-dev)
set(CPACK_COMPONENT_DEV_DESCRIPTION "C++ library for clients, servers and plugins of shared_tensor
Headers, a static library, and files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libssl-dev, zlib1g-dev, libzstd-dev, liblmdb-dev, nlohmann-json3-dev (>= 3.11), prometheus-cpp-dev")

if(SHARED_TENSOR_TORCH)
  _package(models shared-tensor-models)
  set(CPACK_COMPONENT_MODELS_DESCRIPTION "models in TorchScript for shared-tensor-server
They run on libtorch ${LibTorch_VERSION}, which is not in this package:
install it by pip.")
  set(CPACK_DEBIAN_MODELS_PACKAGE_SECTION net)
  # Debian has no package with this libtorch, so dpkg-shlibdeps would fail.
  set(CPACK_DEBIAN_MODELS_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_MODELS_PACKAGE_DEPENDS "shared-tensor-server ${same_version}, libc6, libstdc++6, libgcc-s1")
endif()

if(SHARED_TENSOR_PYTHON_TREE)
  _package(python3 python3-shared-tensor)
  set(CPACK_COMPONENT_PYTHON3_DESCRIPTION "Python package of shared_tensor
Clients, servers and nodes in Python. Tensors may be those of NumPy, torch,
JAX, or any library with DLPack.")
  set(CPACK_DEBIAN_PYTHON3_PACKAGE_SECTION python)
  set(CPACK_DEBIAN_PYTHON3_PACKAGE_DEPENDS
    "python3 (>= 3.11), python3 (<< 3.12), shared-tensor ${same_version}, shared-tensor-server ${same_version}")
  set(CPACK_DEBIAN_PYTHON3_PACKAGE_RECOMMENDS python3-numpy)
  install(DIRECTORY ${SHARED_TENSOR_PYTHON_TREE}/ DESTINATION lib/python3/dist-packages COMPONENT python3 EXCLUDE_FROM_ALL
    USE_SOURCE_PERMISSIONS)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shared-tensor)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${SHARED_TENSOR_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
# /etc is not below the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
include(CPack)
