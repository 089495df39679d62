<?xml version="1.0"?>
<!--
  SPDX-License-Identifier: GPL-2.0-or-later
  Adds a policy to domain XML that a tool generates, for tools that take a stylesheet (Terraform: xml { xslt = ... }).
  A domain that has a policy keeps it.
-->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
                xmlns:idletime="urn:idletime:policy:1">
  <xsl:param name="class">background</xsl:param>

  <xsl:template match="@*|node()">
    <xsl:copy>
      <xsl:apply-templates select="@*|node()"/>
    </xsl:copy>
  </xsl:template>

  <xsl:template name="policy">
    <idletime:policy class="{$class}"/>
  </xsl:template>

  <xsl:template match="/domain/metadata[not(idletime:policy)]">
    <xsl:copy>
      <xsl:apply-templates select="@*|node()"/>
      <xsl:call-template name="policy"/>
    </xsl:copy>
  </xsl:template>

  <xsl:template match="/domain[not(metadata)]/name">
    <xsl:copy-of select="."/>
    <metadata>
      <xsl:call-template name="policy"/>
    </metadata>
  </xsl:template>
</xsl:stylesheet>
