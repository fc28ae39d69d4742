// #region day
/** In milliseconds. In earnest this is 86_400_000, or you write "3d"; here nobody wants to wait for that long. */
export const DAY = 200;
// #endregion day
