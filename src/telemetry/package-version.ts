/** The version in package.json. A constant, as no file can be read relative to this one in a bundled application. */
export const PACKAGE_VERSION = "0.1.0";
