// #region day
/** In milliseconds. In earnest this is 86_400_000, or you write "3d"; the example is shorter, so that it ends soon. */
export const DAY = 200;
// #endregion day
