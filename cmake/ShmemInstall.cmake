# SPDX-License-Identifier: Apache-2.0
# What "make install" brings: library, headers, programs, pkg-config file, CMake package.

install(TARGETS shmem EXPORT shmem-targets)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# The prefix as seen from the file itself, so that an installed tree may be moved.
file(RELATIVE_PATH SHMEM_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/shmem.pc.in shmem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/shmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT shmem-targets NAMESPACE shmem:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmem)
configure_package_config_file(cmake/shmem-config.cmake.in shmem-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmem)
write_basic_package_version_file(shmem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/shmem-config.cmake ${CMAKE_BINARY_DIR}/shmem-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shmem)
# README.md with all that it links to.
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN CMakeLists.txt EXCLUDE)
